"""What this process was started with that changes how fast engines run, or what they compute: the
variables of their libraries, the cores and the priority that it has. (Its share of time:
`harness.core.processes.cores`.)"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath

from harness.core.processes import cores
from harness.core.processes.gpus import ORDER, VISIBLE

LIBRARIES = (
    *("ATEN", "BLIS", "CUBLAS", "CUBLASLT", "CUDA", "CUDNN", "DNNL", "FLASHINFER", "GLIBC", "GOMP"),
    *("GOTO", "KMP", "MALLOC", "MIMALLOC", "MKL", "NCCL", "NUMEXPR", "NVIDIA_TF32", "OMP"),
    *("ONEDNN", "OPENBLAS", "PYTORCH", "RAYON", "TCMALLOC", "TOKENIZERS", "TORCH", "TORCHDYNAMO"),
    *("TORCHINDUCTOR", "TRITON", "VLLM"),
)
"""A variable belongs to a library when its name is one of these and an underscore, and more."""
GPUS = (VISIBLE, ORDER)
"""Which GPUs there are for CUDA, and how it numbers them."""
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
    return (of_library or name in INTERPRETER) and not (name in GPUS or _UNTOLD.search(name))


def gpu_variables() -> dict[str, str]:
    """Those that choose among the GPUs, as they are now. They pin nothing: one machine's scheduler
    gives this GPU and then that one, and what kind it is stands with the machine."""
    return {name: os.environ[name] for name in GPUS if name in os.environ}


def affinity() -> str | None:
    """The cores that this process may run on, as ``0-3,8``; None where the system does not say."""
    own = cores.own_cores()
    return None if own is None else _ranges(own)


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
