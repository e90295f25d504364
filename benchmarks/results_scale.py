"""How long storing, showing, comparing and reporting take: 200 trials of 1,000 requests by default.

    python benchmarks/results_scale.py [--parts store show compare report] [--trials 200]
                                       [--requests 1000] [--drop] [--keep FOLDER]

Made-up trials of five backends, four workloads and two loads; two of the backends change answers.

store    seconds to write a trial, and what it takes on the disk
show     whole processes that load the run, derive its numbers and print them
compare  whole processes that hold it against another one, from folders and from a file of record
report   the page from cold (no derived numbers on the disk, imports included), and again

Times of whole processes are cold starts of Python; `--drop` also empties the page cache before each
(needs root). The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from harness.core.nouns import Load
from results.store.folder import Store
from tests.support.results.report_runs import SCORES, MadeUpBackend, write_run

ENGINES = (
    MadeUpBackend("vllm", 0.010, provenance="official code"),
    MadeUpBackend("vllm-early-exit", 0.0072, {"threshold": 0.8}, changes=0.3, lossless=False),
    MadeUpBackend("vllm-early-exit", 0.0081, {"threshold": 0.9}, changes=0.08, lossless=False),
    MadeUpBackend("adadecode", 0.0135, {"gamma": 0.75}, tokens_per_step=2),
    MadeUpBackend("speculative", 0.0150, {"method": "ngram"}, tokens_per_step=3),
)
LOADS = (Load("closed", concurrency=1), Load("closed", concurrency=8))
SLOWER = 1.02
"""Steps of the run that is compared with the first."""
COMPARED = (0, 1, 3)
"""Exit codes of a comparison that was made."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parts = {"store": store, "show": show, "compare": compare, "report": report}
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--drop", action="store_true", help="empty the page cache (root)")
    parser.add_argument("--keep", type=Path, help="write the run here and leave it")
    chosen = parser.parse_args()
    cells = len(ENGINES) * len(SCORES) * len(LOADS)
    chosen.repeats = max(1, chosen.trials // cells)
    result: dict[str, object] = {"trials": cells * chosen.repeats, "requests": chosen.requests}
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.keep or Path(scratch) / "run"
        made(folder, ENGINES, chosen)
        for part in chosen.parts:
            found = result[part] = parts[part](folder, Path(scratch), chosen)
            for name, value in found.items():
                print(f"{part}: {name:<40} {value:14,.3f}", flush=True)
    print(json.dumps(result))


def made(folder: Path, engines: Sequence[MadeUpBackend], chosen: argparse.Namespace) -> None:
    repeats, requests = chosen.repeats, chosen.requests
    write_run(folder, engines=engines, loads=LOADS, repeats=repeats, requests=requests)


def store(folder: Path, scratch: Path, chosen: argparse.Namespace) -> dict[str, float]:
    """Each trial is read and written into another folder; the latter is timed."""
    source, target = Store(folder), Store(scratch / "again")
    seconds, commits = [], []
    for file in sorted(source.trials_folder.glob("*.json")):
        record = source.read(file.stem)
        seconds.append(timed(partial(target.write, record)))
        commits.append(sum(len(one.commit_ns) for one in record.generations))
    size = sum(path.stat().st_size for path in target.trials_folder.iterdir())
    return {
        "s per trial (median)": statistics.median(seconds),
        "commits/s": sum(commits) / sum(seconds),
        "commits of a trial (median)": statistics.median(commits),
        "MB on the disk": size / 1e6,
    }


def show(folder: Path, scratch: Path, chosen: argparse.Namespace) -> dict[str, float]:
    start = f"import results; run = results.load({str(folder)!r}); "
    derive = f"{start}from results.rows import cells, summaries; "

    def process(*arguments: str) -> float:
        if chosen.drop:
            subprocess.run(["sync"], check=True)
            Path("/proc/sys/vm/drop_caches").write_text("3")
        command = [sys.executable, *arguments]
        return timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))

    shutil.rmtree(folder / "cache", ignore_errors=True)
    found = {
        "load": process("-c", start),
        "summaries, nothing cached": process("-c", f"{derive}summaries(run)"),
        "summaries, cached": process("-c", f"{derive}summaries(run)"),
        "cells, cached": process("-c", f"{derive}cells(run)"),
        "run.requests frame": process("-c", f"{start}run.requests"),
        "run.commits frame": process("-c", f"{start}run.commits"),
    }
    shutil.rmtree(folder / "cache")
    command = ("-m", "harness.cli.main", "show", str(folder))
    found["decodebench show, nothing cached"] = process(*command)
    found["decodebench show, cached"] = process(*command)
    return found


def compare(folder: Path, scratch: Path, chosen: argparse.Namespace) -> dict[str, float]:
    new, record = scratch / "new", scratch / "base.parquet"
    made(new, [replace(one, step_s=SLOWER * one.step_s) for one in ENGINES], chosen)

    def process(*arguments: str | Path) -> float:
        command = [sys.executable, "-m", "harness.cli.main", "compare", *map(str, arguments)]
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in COMPARED:
            raise RuntimeError(f"compare: exit {done.returncode}: {done.stderr}")
        return time.perf_counter() - start

    return {
        "two folders": process(folder, new),
        "--record": process("--record", record, folder),
        "a record and a folder": process(record, new),
        "MB of the record": record.stat().st_size / 1e6,
    }


def report(folder: Path, scratch: Path, chosen: argparse.Namespace) -> dict[str, float]:
    shutil.rmtree(folder / "cache", ignore_errors=True)
    busy = time.process_time()

    def page() -> None:
        from reports.page import write_report

        write_report(folder)

    cold = timed(page)
    cold_cpu = time.process_time() - busy
    return {
        "cold": cold,
        "cold, CPU": cold_cpu,
        "again": timed(page),
        "MB of the page": (folder / "report.html").stat().st_size / 1e6,
    }


def timed(action: Callable[[], object]) -> float:
    """Seconds."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
