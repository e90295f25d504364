"""How often does the gate refuse a version that is the same? Real runs, no simulation.

    python benchmarks/soundness/real_aa.py [--backends vllm,autoregressive] [--comparisons 20]
        [--repeats 4] [--requests 12] [--keep DIR] [--quick]

One `run --against HEAD` of all repeats, so that each engine is loaded once for either side; its
repeats are then cut into comparisons of `--repeats` each, and each of these is put to the gate with
its default margins. `HEAD` has to be what is checked out. For each gated quantity and cell: how
many comparisons pass, fail or say nothing, the mean and the standard deviation of the difference,
and how often an interval of 90% leaves out 0. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import yaml

import results
from results.compare.gate.comparison import compare_runs
from results.compare.gate.decision import Decision
from results.compare.gate.extraction import reduce_run
from results.compare.gate.margins import DEFAULTS
from results.compare.gate.reduced import ReducedRun

Key = tuple[str, str]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backends", default="vllm,autoregressive")
    parser.add_argument("--comparisons", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--requests", type=int, default=12)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if asked.quick:
        asked.backends, asked.comparisons, asked.repeats, asked.requests = "scripted", 2, 2, 4
    with tempfile.TemporaryDirectory() as place:
        folder = asked.keep or Path(place)
        measure(folder, asked)
        decisions = compared(folder, asked.comparisons, asked.repeats)
    tell(decisions)


def measure(folder: Path, asked: argparse.Namespace) -> None:
    """The paired run."""
    names = asked.backends.split(",")
    experiment = {
        "name": "aa",
        "model": "demo",
        "reference": names[0],
        "backends": names,
        "workloads": ["gsm8k"],
        "load": [{"kind": "closed", "concurrency": [1, 8]}],
        "requests": asked.requests,
        "repeats": asked.comparisons * asked.repeats,
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "aa.yaml"
    file.write_text(yaml.safe_dump(experiment))
    command = [sys.executable, "-m", "harness.cli.main", "run", str(file), "--against", "HEAD"]
    subprocess.run([*command, "--out", str(folder / "ab")], check=True)


def compared(folder: Path, count: int, repeats: int) -> list[Decision]:
    """The gate's answer to each part of the run."""
    base, new = (
        reduce_run(results.load(folder / "ab" / side), DEFAULTS.names) for side in ("base", "new")
    )
    return [
        compare_runs(_part(base, place, repeats), _part(new, place, repeats), DEFAULTS)
        for place in range(count)
    ]


def _part(run: ReducedRun, place: int, repeats: int) -> ReducedRun:
    own = range(place * repeats, (place + 1) * repeats)
    trials = [replace(t, repeat=t.repeat - own.start) for t in run.trials if t.repeat in own]
    return ReducedRun(run.where, trials)


def tell(decisions: list[Decision]) -> None:
    """The table and the line of JSON."""
    verdicts: dict[Key, Counter[str]] = defaultdict(Counter)
    worse: dict[Key, list[float]] = defaultdict(list)
    outside: Counter[Key] = Counter()
    for row in (row for decision in decisions for row in decision.rows):
        key = f"{row.cell.backend}, {row.cell.load}", row.metric
        verdicts[key][row.verdict] += 1
        if row.worse_by is not None and row.low is not None and row.high is not None:
            worse[key].append(row.worse_by)
            outside[key] += not row.low <= 0 <= row.high
    for key, counts in verdicts.items():
        found = worse[key] or [0.0]
        spread = statistics.stdev(found) if len(found) > 1 else 0.0
        told = ", ".join(f"{counts[name]} {name}" for name in ("pass", "fail", "inconclusive"))
        print(
            f"{key[0]:32} {key[1]:22} {told:36} mean {statistics.fmean(found):+.4f} "
            f"sd {spread:.4f}  {outside[key]} of {len(found)} intervals leave out 0"
        )
    whole = Counter(decision.verdict for decision in decisions)
    print(json.dumps({"comparisons": len(decisions), "verdicts": whole}))


if __name__ == "__main__":
    main()
