"""The C++ kernels in `cpu/`: compiled for this very CPU at first use, called through ctypes.

The library is kept in the user's cache folder under a digest of its source, the compiler, its flags
and the CPU, so that it is built once for each.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from harness.core.files import cache_folder, one_at_a_time, replacing

SOURCES = Path(__file__).parent
FLAGS = ("-O3", "-march=native", "-std=gnu++17", "-fopenmp", "-fPIC", "-shared")
COMPILERS = ("g++", "c++")


class NativeUnavailableError(RuntimeError):
    """The kernels cannot be built here; the message says why, in one line."""


class CLayer(ctypes.Structure):
    """Pointers of one layer; as in the C++ source."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in (
            *("input_norm", "post_norm", "qkv_bias", "q_norm", "k_norm"),
            *("qkv", "out", "gate_up", "down", "keys", "values", "token_norm"),
        )
    ]


class CModel(ctypes.Structure):
    """Sizes and pointers of a model; as in the C++ source."""

    _fields_ = [
        *(
            (name, ctypes.c_int32)
            for name in (
                *("dtype", "width", "feed_forward", "heads", "kv_heads", "head_dim"),
                *("max_len", "ring", "threads", "slots", "positions", "vocabulary"),
            )
        ),
        ("epsilon", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("embedding", "norm", "cosines", "sines")),
        ("layers", ctypes.POINTER(CLayer)),
        ("shared", ctypes.c_void_p),
        ("own", ctypes.c_void_p),
        ("own_bytes", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("skipped", "taps", "states")),
        ("tap_count", ctypes.c_int32),
    ]


class CRows(ctypes.Structure):
    """Rows of a call; as in the C++ source."""

    _fields_ = [
        ("count", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("slots", "positions", "tokens", "back", "aside")),
        ("layers", ctypes.c_int32),
        ("states", ctypes.c_void_p),
    ]


class CHead(ctypes.Structure):
    """A head for some of the rows; as in the C++ source."""

    _fields_ = [
        ("matrix", ctypes.c_void_p),
        ("vocabulary", ctypes.c_int64),
        ("source", ctypes.c_void_p),
        ("parts", ctypes.c_void_p),
        ("count", ctypes.c_int32),
        ("rows", ctypes.c_void_p),
        ("tokens", ctypes.c_void_p),
        ("confidences", ctypes.c_void_p),
        ("margins", ctypes.c_int32),
    ]


class CContinuation(ctypes.Structure):
    """What is continued, and what comes of it; as in the C++ source."""

    _fields_ = [
        ("most", ctypes.c_void_p),
        ("threshold", ctypes.c_float),
        ("stops", ctypes.c_void_p),
        ("stop_count", ctypes.c_int32),
        ("room", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("tokens", "counts")),
    ]


class CDraws(ctypes.Structure):
    """How rows are sampled; as in the C++ source."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("temperatures", "top_ps", "seeds")]


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded kernels. Raises `NativeUnavailableError`."""
    compiler = _compiler()
    try:
        version = _run([*compiler, "--version"])
    except OSError as error:
        raise NativeUnavailableError(f"C++ compiler {shlex.join(compiler)}: {error}") from None
    files = sorted(path for path in SOURCES.iterdir() if path.suffix in (".cpp", ".h"))
    sources = [path.read_text(encoding="utf-8") for path in files]
    parts = (*sources, version, shlex.join((*compiler, *FLAGS)), _cpu())
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    name = f"decodebench-native-{digest}.so"
    problem = "no folder can be written to for the compiled kernels"
    for folder in filter(_is_ours, _folders()):
        try:
            _build_once(compiler, folder / name)
            return _declare(ctypes.CDLL(str(folder / name)))
        except NativeUnavailableError as error:  # a full disk, as the linker says it
            problem = str(error)
        except OSError as error:  # a folder mounted without execution
            problem = f"compiled kernels: {error}"
    raise NativeUnavailableError(problem)


def _compiler() -> list[str]:
    try:
        named = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise NativeUnavailableError(f"$CXX: {error}") from None
    found = named or [*filter(shutil.which, COMPILERS)][:1]
    if not found:
        raise NativeUnavailableError(f"no C++ compiler found ({', '.join(COMPILERS)}, or $CXX)")
    return found


def scratch_bytes(model: CModel, rows: int) -> tuple[int, int]:
    """Bytes that all threads share, and that each has for itself, in calls of so many rows."""
    shared, own = ctypes.c_int64(), ctypes.c_int64()
    sizes = ctypes.addressof(shared), ctypes.addressof(own)
    library().scratch_bytes(ctypes.addressof(model), rows, *sizes)
    return shared.value, own.value


def _folders() -> list[Path]:
    """Where the library may be kept, in order."""
    return [cache_folder(), Path(tempfile.gettempdir()) / f"decodebench-{os.getuid()}"]


def _is_ours(folder: Path) -> bool:
    """Whether we can write there and nobody else can: the library's code is executed."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
    except OSError:
        return False
    shared = state.st_uid != os.getuid() or state.st_mode & 0o022
    return not shared and os.access(folder, os.W_OK)


def _build_once(compiler: list[str], target: Path) -> None:
    """Build the library if it is not there. Processes that start together, as the stages of a
    pipeline do, wait for the one that does. Raises `OSError` and `NativeUnavailableError`."""
    if target.is_file():
        return
    with one_at_a_time(target.with_suffix(".lock")):
        if not target.is_file():
            _build(compiler, target)


def _build(compiler: list[str], target: Path) -> None:
    with replacing(target) as temporary:
        _run([*compiler, *FLAGS, str(SOURCES / "library.cpp"), "-o", str(temporary)])
        if not temporary.is_file():
            raise NativeUnavailableError(f"{shlex.join(compiler)}: wrote no library")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["failed"]
        place = next((n for n, line in enumerate(said) if "error" in line), len(said) - 1)
        if said[place].startswith("collect2"):  # the linker's own line, which says why, is before
            place = max(place - 1, 0)
        raise NativeUnavailableError(f"{Path(command[0]).name}: {said[place][:300]}")
    return done.stdout


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    kept = [line for line in lines if line.startswith(("model name", "flags", "Features"))]
    return "\n".join(kept)


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, long, number = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
    single, double = ctypes.c_float, ctypes.c_double
    declared: dict[str, tuple[Any, list[Any]]] = {
        "instructions": (ctypes.c_char_p, []),
        "read_all": (number, [pointer, long, number, number]),
        "use_tiles": (number, [number]),
        "scratch_bytes": (None, [pointer, number, pointer, pointer]),
        "parts_floats": (long, [long, long]),
        "group": (number, [number]),
        "pack": (None, [number, pointer, long, long, pointer]),
        "advance": (number, [pointer, pointer, number, number, pointer, pointer, pointer]),
        "fill_rows": (number, [pointer, pointer, number, number, pointer]),
        "continue_greedy": (number, [pointer, pointer, number, pointer, pointer, pointer]),
        "continue_sampled": (number, [pointer, pointer, number, *[pointer] * 4]),
        "draw_rows": (None, [pointer, number, long, *[pointer] * 2, number, *[pointer] * 2]),
        "draw_parts": (
            None,
            [pointer, long, double, ctypes.c_uint64, number, *[pointer] * 2],
        ),
        "head_logits": (number, [pointer, pointer, pointer, pointer]),
        "keep_rows": (None, [pointer, pointer, number, pointer]),
        "margins": (None, [number, pointer, long, long, pointer]),
        "cosines": (None, [number, pointer, pointer, long, long, pointer]),
        "arrange_fill": (
            None,
            [number, pointer, *[long] * 4, *[pointer] * 3, long, *[pointer] * 3],
        ),
        "probabilities": (None, [number, pointer, pointer, single, long, long, pointer]),
    }
    for name, (result, arguments) in declared.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.use_tiles(1)
    return library
