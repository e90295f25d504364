# Sourced by the scripts that make Python environments, each of which sets NAME to what its lines
# begin with. Goes to the repository's root and sets PYTHON: as it was, or what is found here.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s: %s\n' "$NAME" "$*"; }
fail() { say "$*" >&2; exit 2; }

TORCH=2.13.0
TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu

find_python() {
    for name in python3.11 python3.12 python3.13 python3; do
        if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
            echo "$name"; return
        fi
    done
}

# PyPI's Linux torch is the CUDA build, several gigabytes that a machine without a GPU never uses.
# A package index may offer the CPU build under the same version; PyTorch's own index always does.
install_cpu_torch() { # PIP [OPTION...]
    local pip=$1
    shift
    if "$pip" install -qq "$@" "torch==$TORCH+cpu" 2>/dev/null; then
        say "torch $TORCH: the CPU build, from the configured package index"
    elif "$pip" install -qq "$@" "torch==$TORCH+cpu" --extra-index-url "$TORCH_CPU_INDEX" 2>/dev/null; then
        say "torch $TORCH: the CPU build, from PyTorch's CPU wheel index"
    else
        say "torch $TORCH: no CPU build within reach, taking the default build (large)"
        "$pip" install -qq "$@" "torch==$TORCH"
    fi
}

PYTHON=${PYTHON:-$(find_python)}
[ -n "$PYTHON" ] || fail "no Python 3.11 to 3.13 found; install one or set PYTHON=/path/to/python"
