"""The TETRIS paper's cluster, simulated: its headline ratios beside ours.

    python benchmarks/tetris/paper.py [--quick] [--write DIR]

Nothing here was measured: no V100, P100 or K80 is at hand. `models/bert_base.yaml` in
`experiments/tetris` says where its numbers come from; `decodebench simulate
experiments/tetris/*.yaml` has all figures.

`--write` makes the files of `docs/examples/tetris`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from backends.tetris.pipeline.leaving import drawn
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import plan
from backends.tetris.profile import StageProfile, Wanted, cluster_from
from backends.tetris.simulation.compare import SimulatedLoad, SimulatedSystem, compare
from harness.cli.figures.model_file import read_model

BERT = read_model(Path(__file__).parents[2] / "experiments/tetris/models/bert_base.yaml")
PRICE = {kind: device.price for kind, device in BERT.devices.items()}
CLUSTERS = {"v100": {"V100": 16}, "mixed": {"V100": 6, "P100": 8, "K80": 15}}
SLO_MS = 100.0
PAPER = {"shrinking batch": "up to 1.44, 0.97 at batch 1", "plain": "up to 1.30"}


def model(batch: int) -> StageProfile:
    """BERT-Base at a batch."""
    return BERT.profile(batch)


def cluster(name: str) -> dict[str, Any]:
    """One of `CLUSTERS` with its prices."""
    devices = CLUSTERS[name]
    return {"devices": devices, "price": {kind: PRICE[kind] for kind in devices}}


def simulated(batch: int, name: str, requests: int) -> dict[str, SimulatedSystem]:
    """Each system's numbers, closed loop with the number of clients that is best for it."""
    bert = model(batch)
    devices = cluster_from(cluster(name), "cluster", bert)
    found = plan(bert, devices, Wanted(SLO_MS))
    decisions = drawn(bert.survival, requests, 0)
    systems = compare(StageTimes(bert), devices, found, decisions, SimulatedLoad(), SLO_MS)
    return {one.name: one for one in systems}


def write(folder: Path) -> None:
    """The examples, at batch 8."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bert_base.json").write_text(json.dumps(BERT.told(8), indent=1) + "\n")
    for name in CLUSTERS:
        told = cluster(name)
        lines = [
            f"{key}: {json.dumps(value).replace(chr(34), '')}\n" for key, value in told.items()
        ]
        (folder / f"{name}.yaml").write_text("".join(lines))


def main() -> None:
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    asked.add_argument("--quick", action="store_true", help="fewer requests, two batches")
    asked.add_argument("--write", type=Path, help="write the examples into this folder and stop")
    given = asked.parse_args()
    if given.write is not None:
        write(given.write)
        return
    batches, requests = ((1, 8), 20_000) if given.quick else ((1, 2, 4, 8, 16, 32), 100_000)
    print(f"simulation of a stated roofline; the paper's ratios: {PAPER}")
    base: dict[int, float] = {}
    for name in CLUSTERS:
        print(f"\n{name}: {CLUSTERS[name]}; the pipeline's goodput over each baseline's")
        for batch in batches:
            found = simulated(batch, name, requests)
            piped = found.pop("pipeline")
            base.setdefault(batch, piped.goodput_per_s)
            ratios = "  ".join(
                f"{one}: {piped.goodput_per_s / other.goodput_per_s:.2f}"
                for one, other in found.items()
            )
            met = piped.goodput_per_s / (piped.predicted_per_s or 1.0)
            over = piped.goodput_per_s / base[batch]
            told = f"{piped.goodput_per_s:8.0f}/s, {met:.3f} of the plan's, {over:.2f} of 16 V100"
            print(f"  batch {batch:2}: {told}   {ratios}", flush=True)


if __name__ == "__main__":
    main()
