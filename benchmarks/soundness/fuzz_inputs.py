"""Hostile and damaged input through everything that ``decodebench run --dry-run`` does.

Mutated experiment files, damaged data files and a catalogue of what has broken readers before are
read in worker processes; a sample goes through the real command line. Whatever raises something
else than `UserError`, kills its process or takes more than 10 s is a finding, and this exits 1.
Times are the clock's without the time for which the kernel let the process wait for a processor,
so that a busy machine changes no verdict. Nothing is written but temporary files, nothing goes out.

    python -m benchmarks.soundness.fuzz_inputs [--experiments 2400] [--data 300] [--workers 2]
    python -m benchmarks.soundness.fuzz_inputs --case structured:17 --keep FOLDER  # one again
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import multiprocessing
import os
import random
import resource
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

LIMIT_S = 10.0
PATIENCE_S = 5.0
"""Beyond the limit: then a worker is killed."""
START_LIMIT_S = 300.0
"""For a worker to import torch and transformers on a busy machine."""
MEMORY_BYTES = 12 * 2**30
"""Address space of a worker: torch alone maps several GiB that it never touches."""
FILE_BYTES = 128 * 2**20
SHOWN = 40


@dataclass(slots=True)
class CaseOutcome:
    """What became of one case."""

    case: str
    result: str
    """accepted, refused, or what the finding is."""
    text: str
    seconds: float = 0.0
    """Without waiting for a processor."""

    @property
    def is_finding(self) -> bool:
        return self.result not in ("accepted", "refused")


def build(case: str, seed: int, folder: Path) -> Path:
    """Write a case into a folder; returns the experiment's file."""
    from benchmarks.support import fuzz_cases
    from benchmarks.support.fuzz_catalogue import CATALOGUE

    kind, _, number = case.partition(":")
    if kind == "catalogue":
        CATALOGUE[number](folder)
    else:
        getattr(fuzz_cases, kind)(random.Random(f"{seed}/{case}"), folder)
    return folder / fuzz_cases.FILE


def attempt(case: str, file: Path) -> CaseOutcome:
    """Read an experiment file as ``run --dry-run`` does, in this process."""
    from harness.cli import run as running
    from harness.core.errors import UserError

    started = undisturbed_s("self")
    with Path(os.devnull).open("w") as null, contextlib.redirect_stdout(null):
        try:
            with contextlib.redirect_stderr(null):
                out = file.parent / "run"
                running.run_experiment(file, out=out, only=None, fresh=False, dry_run=True)
            result, text = "accepted", ""
        except UserError as error:
            result, text = "refused", str(error)
        except BaseException:  # whatever it is, it is a finding
            result, text = "traceback", traceback.format_exc()
    if (file.parent / "run").exists():
        result, text = "wrote", f"a dry run made {file.parent / 'run'}"
    seconds = undisturbed_s("self") - started
    if seconds > LIMIT_S:
        result, text = "too slow", f"{seconds:.1f} s; {result}: {text}"
    return CaseOutcome(case, result, text, seconds)


def undisturbed_s(process: int | str) -> float:
    """A clock that stands still while the process's first thread waits for a processor."""
    try:
        waited_ns = int(Path(f"/proc/{process}/schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):  # a kernel that does not count, or a dead process
        waited_ns = 0
    return time.monotonic() - waited_ns / 1e9


def work(pipe: Connection, seed: int, root: Path) -> None:
    """A worker: cases come in by name, outcomes go out. None ends it."""
    from benchmarks.support.fuzz_cases import write_experiment

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory(dir=root) as folder:
        # imports are not what is measured
        warm = [{"name": name} for name in ("adadecode", "vllm-early-exit", "vllm", "http")]
        attempt("warm-up", write_experiment(Path(folder), backends=warm))
    pipe.send("ready")
    while (case := pipe.recv()) is not None:
        with tempfile.TemporaryDirectory(dir=root) as folder:
            file = build(case, seed, Path(folder))
            pipe.send("built")
            pipe.send(attempt(case, file))


@dataclass(slots=True)
class Worker:
    """A process at work on one case."""

    process: Any
    pipe: Connection
    case: str | None = None
    deadline: float = field(default_factory=lambda: time.monotonic() + START_LIMIT_S)
    """On the clock of `undisturbed_s`, which is never ahead of the plain one."""


def start_worker(seed: int, root: Path) -> Worker:
    """A fresh process, which says "ready" once everything is imported."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, seed, root), daemon=True)
    process.start()
    theirs.close()
    return Worker(process, ours)


def run_all(cases: Sequence[str], seed: int, count: int, root: Path) -> Iterator[CaseOutcome]:
    """Every case's outcome, in the order in which they end."""
    todo = collections.deque(cases)
    workers = [start_worker(seed, root) for _ in range(min(count, len(todo)))]
    while workers:
        wait([worker.pipe for worker in workers], timeout=0.2)
        for place, worker in enumerate(workers):
            outcome = next_outcome(worker, todo)
            if outcome is not None:
                yield outcome
                if worker.case is None and todo:
                    workers[place] = start_worker(seed, root)
        workers = [worker for worker in workers if worker.process.is_alive() or worker.case]


def next_outcome(worker: Worker, todo: collections.deque[str]) -> CaseOutcome | None:
    """Take what a worker has to say, and give it more to do."""
    case = worker.case
    try:
        if not worker.pipe.poll():
            if undisturbed_s(worker.process.pid) < worker.deadline:
                return None
            worker.process.kill()
            worker.process.join()
            worker.case = None
            return CaseOutcome(str(case), "too slow", f"over {LIMIT_S:g} s; killed", LIMIT_S)
        told = worker.pipe.recv()
        if told == "built":
            worker.deadline = undisturbed_s(worker.process.pid) + LIMIT_S + PATIENCE_S
            return None
        worker.case = todo.popleft() if todo else None
        worker.deadline = time.monotonic() + START_LIMIT_S
        worker.pipe.send(worker.case)
        if worker.case is None:
            worker.process.join()
        return told if isinstance(told, CaseOutcome) else None
    except (EOFError, OSError):
        worker.process.join()
        worker.case = None
        return CaseOutcome(str(case), "died", f"exit code {worker.process.exitcode}")


def by_command(cases: Sequence[str], seed: int, root: Path) -> Iterator[CaseOutcome]:
    """A sample of the cases through the real command line. The time of a good file, most of which
    is imports, is added to the limit."""
    from benchmarks.support.fuzz_cases import write_experiment

    good = Path(tempfile.mkdtemp(dir=root))
    file = write_experiment(good, backends=["adadecode"])
    limit = LIMIT_S + command("good", file, START_LIMIT_S).seconds
    for case in cases:
        with tempfile.TemporaryDirectory(dir=root) as folder:
            yield command(case, build(case, seed, Path(folder)), limit)


def command(case: str, file: Path, limit_s: float, **environment: str) -> CaseOutcome:
    """One run of ``decodebench run FILE --dry-run``: exit code 0, or 2 with one line."""
    call = [sys.executable, "-m", "harness.cli.main", "run", str(file), "--dry-run"]
    started = time.monotonic()
    env = {**os.environ, "HF_HUB_OFFLINE": "1", **environment}
    try:
        done = subprocess.run(call, capture_output=True, env=env, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return CaseOutcome(f"{case} (command)", "too slow", f"over {limit_s:.0f} s", limit_s)
    lines = done.stderr.decode(errors="replace").splitlines()
    ours = [line for line in lines if not line.startswith("warning: ")]
    refused = done.returncode == 2 and len(ours) == 1 and ours[0].startswith("decodebench: ")
    fine = refused or (done.returncode == 0 and not ours)
    result = ("refused" if refused else "accepted") if fine else "traceback"
    text = "\n".join([f"exit code {done.returncode}", *lines[-SHOWN:]])
    return CaseOutcome(f"{case} (command)", result, text, time.monotonic() - started)


def silent_hub(root: Path) -> Iterator[CaseOutcome]:
    """Names that only a hub would know, while the hub takes connections and never answers, and
    while nobody listens."""
    from benchmarks.support.fuzz_cases import write_experiment

    workloads = [{"name": "gsm8k", "source": "hub"}]
    named: tuple[dict[str, Any], ...] = ({"model": "nobody/nothing"}, {"workloads": workloads})
    caches = {"HF_HOME": str(root / "hub"), "HF_HUB_OFFLINE": "0"}
    good = write_experiment(root, backends=["adadecode"])
    limit = LIMIT_S + command("good", good, START_LIMIT_S).seconds
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for place, where in (("silent", port), ("absent", 1)):
            for number, keys in enumerate(named):
                file = write_experiment(root, **keys)
                endpoint = {"HF_ENDPOINT": f"http://127.0.0.1:{where}"}
                yield command(f"{place} hub:{number}", file, limit, **caches, **endpoint)


def names(experiments: int, data: int) -> list[str]:
    """The cases: the catalogue, then mutated files, three of five by structure, then data."""
    from benchmarks.support.fuzz_catalogue import CATALOGUE

    kinds = ["bytewise" if n % 5 < 2 else "structured" for n in range(experiments)]
    return [
        *(f"catalogue:{name}" for name in CATALOGUE),
        *(f"{kind}:{n}" for n, kind in enumerate(kinds)),
        *(f"data:{n}" for n in range(data)),
    ]


def report(outcomes: list[CaseOutcome], seconds: float) -> int:
    """Print counts and findings; returns the exit code."""
    table = collections.Counter((o.case.partition(":")[0], o.result) for o in outcomes)
    for (kind, result), count in sorted(table.items()):
        print(f"{kind:>12} {result:>9} {count:>6}")
    slowest = max(outcomes, key=lambda outcome: outcome.seconds)
    print(f"{len(outcomes)} cases in {seconds:.0f} s; the slowest, {slowest.case}, ", end="")
    print(f"took {slowest.seconds:.1f} s")
    found = [outcome for outcome in outcomes if outcome.is_finding]
    for outcome in found[:SHOWN]:
        print(f"FINDING {outcome.case}: {outcome.result}\n{outcome.text}")
    print(f"{len(found)} findings")
    return 1 if found else 0


def main() -> None:
    """Run the cases that the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--experiments", type=int, default=2400)
    parser.add_argument("--data", type=int, default=300)
    parser.add_argument("--command", type=int, default=40, help="also by the command line")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--case", help="one case alone, in this process")
    parser.add_argument("--keep", type=Path, help="with --case: an empty folder for its files")
    chosen = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-inputs-") as root:
        if chosen.case:
            folder = chosen.keep or Path(root)
            folder.mkdir(parents=True, exist_ok=True)
            outcome = attempt(chosen.case, build(chosen.case, chosen.seed, folder))
            print(f"{outcome.result} in {outcome.seconds:.1f} s\n{outcome.text}")
            sys.exit(outcome.is_finding)
        cases = names(chosen.experiments, chosen.data)
        sample = random.Random(chosen.seed).sample(cases, min(chosen.command, len(cases)))
        outcomes = list(run_all(cases, chosen.seed, chosen.workers, Path(root)))
        if sample:
            outcomes += by_command(sample, chosen.seed, Path(root))
            outcomes += silent_hub(Path(root))
        code = report(outcomes, time.monotonic() - started)
    sys.exit(code)


if __name__ == "__main__":
    main()
