"""What this process was started with that changes how fast engines run, or what they compute: the
variables of their libraries, the cores, the priority and the share of time that it has."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath

LIBRARIES = (
    *("ATEN", "BLIS", "CUBLAS", "CUBLASLT", "CUDA", "CUDNN", "DNNL", "FLASHINFER", "GLIBC", "GOMP"),
    *("GOTO", "KMP", "MALLOC", "MIMALLOC", "MKL", "NCCL", "NUMEXPR", "NVIDIA_TF32", "OMP"),
    *("ONEDNN", "OPENBLAS", "PYTORCH", "RAYON", "TCMALLOC", "TOKENIZERS", "TORCH", "TORCHDYNAMO"),
    *("TORCHINDUCTOR", "TRITON", "VLLM"),
)
"""A variable belongs to a library when its name is one of these and an underscore, and more."""
INTERPRETER = ("PYTHONDEVMODE", "PYTHONMALLOC", "PYTHONOPTIMIZE", "PYTHONTRACEMALLOC")
PRELOAD = "LD_PRELOAD"
"""Of the libraries named there the file names count: where they lie is not told."""
_WORDS = (
    *("KEY", "KEYS", "SECRET", "SECRETS", "PASS", "PASSWORD", "PASSWD", "AUTH", "COOKIE"),
    *("CREDENTIAL", "CREDENTIALS", "TOKEN(?!_THRESHOLD)", "USER", "NAME"),
    *("ADDR", "ADDRESS", "ENDPOINT", "HOST", "IP", "IPS", "PORT", "URI", "URL"),
    *("DIR", "FILE", "FOLDER", "HOME", "LOCATION", "PATH", "ROOT"),
)
_UNTOLD = re.compile(rf"(?:^|_)(?:{'|'.join(_WORDS)})(?:_|$)")
"""Names of secrets, places and addresses. They are never stored."""
STARTED_WITH = dict(os.environ)
"""Before any engine's library is imported: vLLM sets some of these variables itself, but only in
processes that import it, and a run that is resumed may have no reason to."""


def variables(environment: Mapping[str, str] = STARTED_WITH) -> dict[str, str]:
    """The variables that change speed or results, by name.

    Left out are names of secrets, and values that hold a path or an address.
    """
    found = {}
    for name in sorted(environment):
        value = environment[name].strip()
        if name == PRELOAD:
            value = " ".join(PurePath(path).name for path in re.split(r"[:\s]+", value))
        elif not _counts(name) or "/" in value:
            continue
        if value:
            found[name] = value
    return found


def _counts(name: str) -> bool:
    of_library = name.startswith(tuple(f"{library}_" for library in LIBRARIES))
    return (of_library or name in INTERPRETER) and not _UNTOLD.search(name)


def affinity() -> str | None:
    """The cores that this process may run on, as ``0-3,8``; None where the system does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return _ranges(os.sched_getaffinity(0))


def _ranges(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{low}-{high}" if high > low else f"{low}" for low, high in runs)


def niceness() -> int:
    """The priority of this process: 0 is the usual one, 19 the last in the queue."""
    return os.getpriority(os.PRIO_PROCESS, 0)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of time that the control groups around this process allow; None: no limit."""
    return min(_quotas(root), default=None)


def _quotas(root: Path) -> Iterator[float]:
    groups = root / "sys/fs/cgroup"
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            # In a container the path is the host's: what is mounted is its own group, at the top.
            own = PurePath(group.lstrip("/"))
            for folder in (own, *own.parents):
                if not controllers:
                    yield from _quota([groups / folder / "cpu.max"])
                elif "cpu" in controllers.split(","):
                    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                    yield from _quota([groups / "cpu" / folder / name for name in names])


def _quota(files: list[Path]) -> Iterator[float]:
    """Of one group; nothing where it has none ("max", or -1)."""
    with contextlib.suppress(OSError, ValueError):
        allowed, period = (int(word) for file in files for word in file.read_text().split())
        if allowed > 0 and period > 0:
            yield round(allowed / period, 3)
