"""How long `compare` takes on two runs of 200 trials of 1,000 requests.

    python benchmarks/soundness/gate_scale.py [--trials 200] [--requests 1000] [--tokens 64]

Whole processes, from folders and from a file of record. Times include the start of Python.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.results_scale import experiment_text, make_record, trials
from results.store.folder import Store

MEANT = (0, 1, 3)
"""Exit codes of a comparison that was made."""


def write_run(folder: Path, seed: int, arguments: argparse.Namespace) -> None:
    rng, store = np.random.default_rng(seed), Store(folder)
    store.write_experiment(experiment_text())
    for trial in trials(arguments.trials, arguments.requests, arguments.tokens):
        store.write(make_record(trial, rng))


def timed(what: str, *command: str | Path) -> None:
    start = time.perf_counter()
    whole = [sys.executable, "-m", "harness.cli.main", "compare", *map(str, command)]
    done = subprocess.run(whole, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode not in MEANT:
        raise SystemExit(f"{what}: exit {done.returncode}: {done.stderr}")
    print(f"{what:<48} {seconds:8.2f} s  {done.stdout.splitlines()[-1]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=64)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        base, new, record = (Path(name) / part for part in ("base", "new", "base.parquet"))
        for seed, folder in enumerate((base, new)):
            write_run(folder, seed, arguments)
        timed("compare, two folders", base, new)
        timed("compare --record", "--record", record, base)
        timed("compare, a record and a folder", record, new)
        print(f"record: {record.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
