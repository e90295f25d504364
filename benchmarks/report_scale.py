"""How long the report of a large run takes: 200 trials of 1,000 requests.

    python -m benchmarks.report_scale [--trials 200] [--requests 1000] [--keep DIR]

Prints the seconds of `write_report` from cold (no derived numbers on disk, imports included) and
again, the size of the page, and one line of JSON. The run itself is synthetic and not timed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

from harness.core.nouns import Load
from tests.support.results.report_runs import SCORES, MadeUpBackend, write_run

ENGINES = (
    MadeUpBackend("vllm", 0.010, provenance="official code"),
    MadeUpBackend("vllm-early-exit", 0.0072, {"threshold": 0.8}, changes=0.3),
    MadeUpBackend("vllm-early-exit", 0.0081, {"threshold": 0.9}, changes=0.08),
    MadeUpBackend("adadecode", 0.0135, {"gamma": 0.75}, tokens_per_step=2),
    MadeUpBackend("speculative", 0.0150, {"method": "ngram"}, tokens_per_step=3),
)
LOADS = (Load("closed", concurrency=1), Load("closed", concurrency=8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--keep", type=Path, help="write the run here and leave it")
    chosen = parser.parse_args()
    folder = chosen.keep or Path(tempfile.mkdtemp(prefix="report-scale-"))
    per_repeat = len(ENGINES) * len(SCORES) * len(LOADS)
    repeats = max(1, chosen.trials // per_repeat)
    write_run(folder, engines=ENGINES, loads=LOADS, repeats=repeats, requests=chosen.requests)
    measured = {"trials": repeats * per_repeat, "requests": chosen.requests, **_measure(folder)}
    if chosen.keep is None:
        shutil.rmtree(folder)
    for name, value in measured.items():
        print(f"{name:>12}  {value}")
    print(json.dumps(measured))


def _measure(folder: Path) -> dict[str, float]:
    shutil.rmtree(folder / "cache", ignore_errors=True)
    began, busy = time.perf_counter(), time.process_time()
    from reports.page import write_report

    page = write_report(folder)
    cold, cold_cpu = time.perf_counter() - began, time.process_time() - busy
    began = time.perf_counter()
    write_report(folder)
    return {
        "cold_s": round(cold, 2),
        "cold_cpu_s": round(cold_cpu, 2),
        "again_s": round(time.perf_counter() - began, 2),
        "page_bytes": page.stat().st_size,
    }


if __name__ == "__main__":
    main()
