#!/usr/bin/env bash
# Set up the load generators that benchmarks/http_truth.py compares ours with, each in an environment
# of its own below .tools/, because their libraries and ours do not fit together.
#
# PYTHON names the interpreter to use.
NAME=http-tools
. "$(dirname "$0")/environments.sh"

install_tool() { # NAME VERSION
    local folder=.tools/$1 wanted
    wanted="$1==$2 torch==$TORCH $("$PYTHON" --version) $PWD"
    if [ "$(cat "$folder/decodebench-setup" 2>/dev/null)" = "$wanted" ]; then
        say "$1 $2 is there: $folder"
        return
    fi
    say "$1 $2 into $folder (some minutes)"
    rm -rf "$folder"
    "$PYTHON" -m venv "$folder"
    install_cpu_torch "$folder/bin/python"
    install "$folder/bin/python" "torch==$TORCH" "$1==$2"
    echo "$wanted" > "$folder/decodebench-setup"
    say "done: $folder/bin/$1"
}

mkdir -p .tools
install_tool guidellm 0.8.1
install_tool aiperf 0.13.0
