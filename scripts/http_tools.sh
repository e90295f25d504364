#!/usr/bin/env bash
# Set up the load generators that benchmarks/http_truth.py compares ours with, each in an environment
# of its own below .tools/, because their libraries and ours do not fit together.
#
# PYTHON names the interpreter to use.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'http-tools: %s\n' "$*"; }
fail() { printf 'http-tools: %s\n' "$*" >&2; exit 2; }

TORCH=2.13.0
TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu

find_python() {
    if [ -n "${PYTHON:-}" ]; then echo "$PYTHON"; return; fi
    for name in python3.11 python3.12 python3.13 python3; do
        if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
            echo "$name"; return
        fi
    done
}

# Neither tool computes anything with torch: the CPU build saves several gigabytes.
install_cpu_torch() {
    "$1" install -qq "torch==$TORCH+cpu" 2>/dev/null && return
    "$1" install -qq "torch==$TORCH+cpu" --extra-index-url "$TORCH_CPU_INDEX" 2>/dev/null && return
    say "torch $TORCH: no CPU build within reach, taking the default build (large)"
}

install() { # NAME VERSION
    local folder=.tools/$1 wanted
    wanted="$1==$2 torch==$TORCH $("$PYTHON" --version) $PWD"
    if [ "$(cat "$folder/decodebench-setup" 2>/dev/null)" = "$wanted" ]; then
        say "$1 $2 is there: $folder"
        return
    fi
    say "$1 $2 into $folder (some minutes)"
    rm -rf "$folder"
    "$PYTHON" -m venv "$folder"
    install_cpu_torch "$folder/bin/pip"
    "$folder/bin/pip" install -qq "torch==$TORCH" "$1==$2"
    echo "$wanted" > "$folder/decodebench-setup"
    say "done: $folder/bin/$1"
}

PYTHON=$(find_python)
[ -n "$PYTHON" ] || fail "no Python 3.11 to 3.13 found; install one or set PYTHON=/path/to/python"
mkdir -p .tools
install guidellm 0.8.1
install aiperf 0.13.0
