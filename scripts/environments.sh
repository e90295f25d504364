# Sourced by the scripts that make Python environments, each of which sets NAME to what its lines
# begin with. Goes to the repository's root and sets PYTHON: as it was, or what is found here.
set -euo pipefail
cd "$(dirname "$0")/.."

trap 'exit 130' INT  # pip ends an interrupt as it ends an error, after which the next way is tried

say() { printf '%s: %s\n' "$NAME" "$*"; }
fail() { say "$*" >&2; exit 2; }

TORCH=2.13.0 UV=0.13.9
TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu

find_python() {
    for name in python3.11 python3.12 python3.13 python3; do
        if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
            echo "$name"; return
        fi
    done
}

# pip's configuration in the words of uv, which reads none of it: a setting each line. Fails where uv
# has no word for one.
uv_settings() { # PYTHON
    "$1" -m pip config list 2>/dev/null | "$PYTHON" -c '
import ast, sys
SECTIONS = ("global", "install", ":env:")  # in pip, what a later one says stands
NAMES = {"index-url": ("UV_DEFAULT_INDEX", ""), "extra-index-url": ("UV_INDEX", " "),
         "find-links": ("UV_FIND_LINKS", ","), "constraint": ("UV_CONSTRAINT", " "),
         "trusted-host": ("UV_INSECURE_HOST", " "), "no-index": ("UV_NO_INDEX", ""),
         "cert": ("SSL_CERT_FILE", ""), "default-timeout": ("UV_HTTP_TIMEOUT", "")}
WORDLESS = {"client-cert", "no-binary", "only-binary", "pre", "prefer-binary", "proxy"}
found = {}
for line in sys.stdin:
    name, _, value = line.strip().partition("=")
    section, _, key = name.rpartition(".")
    if section in SECTIONS and (value := ast.literal_eval(value).strip()):
        found.setdefault(key, {})[SECTIONS.index(section)] = value
if WORDLESS & found.keys():
    sys.exit(1)
for key, said in found.items():
    if key in NAMES:
        setting, between = NAMES[key]
        value = said[max(said)]
        print(f"{setting}={between.join(value.split()) if between else value}")
'
}

# By uv, which takes half of pip's time (it unpacks and compiles on all cores); by pip, which says what
# is wrong, where uv is not to be had or fails.
install() { # PYTHON OPTION... PACKAGE...
    local python=$1 told settings
    shift
    if "$python" -m pip install -qq "uv==$UV" 2>/dev/null && told=$(uv_settings "$python"); then
        mapfile -t settings <<< "$told"
        [ -n "$told" ] || settings=()
        env "${settings[@]}" "$python" -m uv pip install --python "$python" -q --compile-bytecode \
            --index-strategy unsafe-best-match "$@" 2>/dev/null && return
    fi
    "$python" -m pip install -qq "$@"
}

# PyPI's Linux torch is the CUDA build, several gigabytes that a machine without a GPU never uses.
# A package index may offer the CPU build under the same version; PyTorch's own index always does.
install_cpu_torch() { # PYTHON [OPTION...]
    if install "$@" "torch==$TORCH+cpu" 2>/dev/null; then
        say "torch $TORCH: the CPU build, from the configured package index"
    elif install "$@" "torch==$TORCH+cpu" --extra-index-url "$TORCH_CPU_INDEX" 2>/dev/null; then
        say "torch $TORCH: the CPU build, from PyTorch's CPU wheel index"
    else
        say "torch $TORCH: no CPU build within reach, taking the default build (large)"
        install "$@" "torch==$TORCH"
    fi
}

PYTHON=${PYTHON:-$(find_python)}
[ -n "$PYTHON" ] || fail "no Python 3.11 to 3.13 found; install one or set PYTHON=/path/to/python"
