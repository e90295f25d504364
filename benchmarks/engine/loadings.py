"""Do intervals hold what one loading of an engine decides? Equal engines beside each other, once
with one loading for all repeats and once with one for each.

    python benchmarks/engine/loadings.py [--engines 8] [--repeats 4] [--requests 20]
                                            [--backend autoregressive] [--keep DIR] [--quick]

The engines differ in `max_num_seqs` alone, beyond what is ever in flight. Neighbours are compared,
each engine with one other one, by the time per token of all requests and repeats
(`results.compare.intervals.crossed`): how many intervals of 95% leave out that they are equally
fast (nominal 5%), their median half width, and the standard deviation of the differences found,
both in percent. Beside them how far the means of equal engines stand apart, and how far they would
by what their own repeats differ, over all cells: what is more is the loading's. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import results
from results.compare.intervals.crossed import crossed_mean

LOADS = (1, 8)
WORKLOADS = ("gsm8k", "cnn_dailymail")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="autoregressive")
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if asked.quick:
        asked.engines, asked.repeats, asked.requests = 2, 2, 4
    with tempfile.TemporaryDirectory() as place:
        folder = asked.keep or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        found = {name: measured(folder, asked, name == "anew") for name in ("once", "anew")}
    print(json.dumps(found))


def measured(folder: Path, asked: argparse.Namespace, reload: bool) -> dict[str, Any]:
    """One run and what its intervals say."""
    name = "anew" if reload else "once"
    experiment = {
        "name": name,
        "model": "demo",
        "backends": [
            {"name": asked.backend, "max_num_seqs": 32 + place} for place in range(asked.engines)
        ],
        "workloads": list(WORKLOADS),
        "load": [{"kind": "closed", "concurrency": list(LOADS)}],
        "requests": asked.requests,
        "repeats": asked.repeats,
        "reload": reload,
    }
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(experiment))
    command = [sys.executable, "-m", "harness.cli.main", "run", str(file), "--again-share", "0"]
    where = ["--out", str(folder / name), "--fresh"]
    subprocess.run([*command, *where], check=True, stdout=subprocess.DEVNULL)
    told = over_pairs(folder / name)
    print(f"loaded {name}: {json.dumps(told)}", flush=True)
    return told


def over_pairs(folder: Path) -> dict[str, Any]:
    """Of all pairs of neighbours in all cells."""
    run = results.load(folder)
    means, halves, outside = list[float](), list[float](), 0
    apart, explained = list[float](), list[float]()
    for _, cell in run.requests.groupby(["workload", "load"]):
        table = cell.pivot_table(
            index="repeat", columns=["variant", "request_id"], values="tpot_s", observed=True
        )
        engines = [np.log(table[name].to_numpy()) for name in sorted(set(cell["variant"]))]
        by_repeat = np.array([engine.mean(axis=1) for engine in engines])
        own = by_repeat - by_repeat.mean(axis=0)
        apart.append(own.mean(axis=1).var(ddof=1))
        explained.append(own.var(axis=1, ddof=1).mean() / own.shape[1])
        for one, other in zip(engines[::2], engines[1::2], strict=False):
            compared = crossed_mean(one - other)
            bounds = None if compared is None else compared.bounds()
            assert compared is not None
            assert bounds is not None
            means.append(compared.mean)
            halves.append((bounds[1] - bounds[0]) / 2)
            outside += not bounds[0] <= 0 <= bounds[1]
    return {
        "disturbed_trials": int((~run.trials.valid).sum()),
        "pairs": len(means),
        "left_out": outside,
        "median_half_percent": round(100 * float(np.median(halves)), 2),
        "differences_sd_percent": round(100 * float(np.std(means)), 2),
        "engines_apart_sd_percent": round(100 * float(np.sqrt(np.mean(apart))), 2),
        "by_their_repeats_sd_percent": round(100 * float(np.sqrt(np.mean(explained))), 2),
    }


if __name__ == "__main__":
    main()
