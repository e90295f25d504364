#!/usr/bin/env bash
# Set up .venv with everything decodebench needs, and say what is being done.
#
#   scripts/setup.sh [--browser]     --browser also installs Chromium for the browser tests
#
# DECODEBENCH_DEVICE=cpu|cuda overrides the detection; PYTHON names the interpreter to use.
NAME=setup
. "$(dirname "$0")/environments.sh"

detect_device() {
    if [ -n "${DECODEBENCH_DEVICE:-}" ]; then echo "$DECODEBENCH_DEVICE"; return; fi
    if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then echo cuda; else echo cpu; fi
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

DEVICE=$(detect_device)
case "$DEVICE" in cpu|cuda) ;; *) fail "DECODEBENCH_DEVICE: expected cpu or cuda, got '$DEVICE'" ;; esac
LOCK=locks/linux-x86_64-$DEVICE.txt
PY=.venv/bin/python
PIP=.venv/bin/pip

stamp=$(cat pyproject.toml "$LOCK" scripts/setup.sh scripts/environments.sh | "$PYTHON" -c "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest(), '$DEVICE', sys.version.split()[0], '$PWD')")
if [ "$(cat .venv/decodebench-setup 2>/dev/null)" != "$stamp" ]; then
    say "$("$PYTHON" --version), device: $DEVICE (the first time takes some minutes)"
    before=$(cat .venv/decodebench-setup 2>/dev/null || true)
    if [ -n "$before" ] && [ "${before#* }" != "${stamp#* }" ]; then
        say "made for another device, Python or place: .venv is made anew"
        rm -rf .venv
    fi
    [ -x "$PY" ] || "$PYTHON" -m venv .venv
    [ "$DEVICE" = cuda ] || install_cpu_torch "$PY" -c "$LOCK"
    say "vLLM and the libraries, at the versions of $LOCK"
    install "$PY" -c "$LOCK" -e ".[$DEVICE,dev]"
    drop_broken_vision
    echo "$stamp" > .venv/decodebench-setup
    say "done: .venv/bin/decodebench"
fi
[ "${1:-}" != --browser ] || install_browser
