#!/usr/bin/env bash
# Set up .venv with everything decodebench needs, and say what is being done.
#
#   scripts/setup.sh [--browser]     --browser also installs Chromium for the browser tests
#
# DECODEBENCH_DEVICE=cpu|cuda overrides the detection; PYTHON names the interpreter to use.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 2; }

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

detect_device() {
    if [ -n "${DECODEBENCH_DEVICE:-}" ]; then echo "$DECODEBENCH_DEVICE"; return; fi
    if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then echo cuda; else echo cpu; fi
}

# PyPI's Linux torch is the CUDA build, several gigabytes that a machine without a GPU never uses.
# A package index may offer the CPU build under the same version; PyTorch's own index always does.
install_cpu_torch() {
    if "$PIP" install -qq -c "$LOCK" "torch==$TORCH+cpu" 2>/dev/null; then
        say "torch $TORCH: the CPU build, from the configured package index"
    elif "$PIP" install -qq -c "$LOCK" "torch==$TORCH+cpu" --extra-index-url "$TORCH_CPU_INDEX" 2>/dev/null; then
        say "torch $TORCH: the CPU build, from PyTorch's CPU wheel index"
    else
        say "torch $TORCH: no CPU build within reach, taking the default build (large)"
        "$PIP" install -qq -c "$LOCK" "torch==$TORCH"
    fi
}

# vLLM's CPU wheel asks for torchvision, torchaudio and torchcodec, whose builds may belong to another
# torch and then break `import transformers`. A text-only vLLM never needs them.
drop_broken_vision() {
    if "$PIP" show -q torchvision 2>/dev/null && ! "$PY" -c 'import torchvision' >/dev/null 2>&1; then
        say "torchvision does not fit this torch: removing torchvision, torchaudio and torchcodec"
        "$PIP" uninstall -q -y torchvision torchaudio torchcodec >/dev/null 2>&1 || true
    fi
}

install_browser() {
    for name in chromium chromium-browser google-chrome; do
        if command -v "$name" >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then return; fi
    done
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "installing Chromium for the browser tests (apt)"
        apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq chromium chromium-driver >/dev/null 2>&1 && return
    fi
    say "Chromium and chromedriver are not here and cannot be installed: the browser tests will be skipped"
}

PYTHON=$(find_python)
[ -n "$PYTHON" ] || fail "no Python 3.11 to 3.13 found; install one or set PYTHON=/path/to/python"
DEVICE=$(detect_device)
case "$DEVICE" in cpu|cuda) ;; *) fail "DECODEBENCH_DEVICE: expected cpu or cuda, got '$DEVICE'" ;; esac
LOCK=locks/linux-x86_64-$DEVICE.txt
PY=.venv/bin/python
PIP=.venv/bin/pip

stamp=$(cat pyproject.toml "$LOCK" scripts/setup.sh | "$PYTHON" -c "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest(), '$DEVICE', sys.version.split()[0], '$PWD')")
if [ "$(cat .venv/decodebench-setup 2>/dev/null)" != "$stamp" ]; then
    say "$("$PYTHON" --version), device: $DEVICE (the first time takes some minutes)"
    [ -x "$PY" ] || "$PYTHON" -m venv .venv
    [ "$DEVICE" = cuda ] || install_cpu_torch
    say "vLLM and the libraries, at the versions of $LOCK"
    "$PIP" install -qq -c "$LOCK" -e ".[$DEVICE,dev]"
    drop_broken_vision
    echo "$stamp" > .venv/decodebench-setup
    say "done: .venv/bin/decodebench"
fi
[ "${1:-}" != --browser ] || install_browser
