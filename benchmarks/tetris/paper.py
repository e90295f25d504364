"""The TETRIS paper's cluster, simulated: its headline ratios beside ours.

    python benchmarks/tetris/paper.py [--quick] [--write DIR]

Nothing here was measured: no V100, P100 or K80 is at hand. A layer's time is a roofline, the longer
of a floor (launching kernels) and the arithmetic of its inputs, from what follows.

From the paper: BERT-Base, SLO 100 ms; a V100 is not saturated at batch 8 (§5.1), so that its floor
is taken to end there; 26 P100 cost what 16 V100 do and answer more at small batches (§2.3), so that
a P100's floor is a V100's; 16 V100, and 6 V100 + 8 P100 + 15 K80, cost 0.013 $ a second (§5.5.3),
which gives the three prices; the second is up to 34% quicker at small batches, which gives a K80's
floor. From data sheets: float32 peaks of 15.7, 9.3 and 2.8 TFLOP/s, PCIe at 12 GB/s.

Fitted to what the paper says of its baseline and of batch 1, not to its gains at larger batches:
ramps at 0.1 of a layer (BERT is 1.44 / 1.30 of DeeBERT where batches are large), and survival that
falls evenly to 0.4 (TETRIS is 3% behind DeeBERT at batch 1).

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
from backends.tetris.profile import StageProfile, Wanted, cluster_from, profile_from
from backends.tetris.simulation.compare import SimulatedLoad, SimulatedSystem, compare

LAYERS, WIDTH, TOKENS = 12, 768, 128
PEAK_FLOPS = {"V100": 15.7e12, "P100": 9.3e12, "K80": 2.8e12}
PCIE_BYTES_PER_S = 12e9
UNSATURATED = 8
SLOWER_FLOOR = {"V100": 1.0, "P100": 1.0, "K80": 2.0}
RAMP, LAST_ALIVE = 0.1, 0.4
PRICE = {"V100": 2.925, "P100": 1.8, "K80": 0.99}
"""Dollars an hour: 0.013 a second over 16; over 26; and what 6 V100 and 8 P100 leave for 15."""
CLUSTERS = {"v100": {"V100": 16}, "mixed": {"V100": 6, "P100": 8, "K80": 15}}
SLO_MS = 100.0
PAPER = {"shrinking batch": "up to 1.44, 0.97 at batch 1", "plain": "up to 1.30"}


def layer_ms(kind: str, inputs: int) -> float:
    """A layer's time: 24 d^2 operations a token for its matrices and 4 n d for its attention."""
    operations = TOKENS * (24 * WIDTH**2 + 4 * TOKENS * WIDTH)
    each_ms = {name: 1e3 * operations / peak for name, peak in PEAK_FLOPS.items()}
    floor_ms = UNSATURATED * each_ms["V100"] * SLOWER_FLOOR[kind]
    return max(floor_ms, each_ms[kind] * inputs)


def profile(batch: int) -> dict[str, Any]:
    """What `decodebench plan` and `simulate` are told of BERT-Base at a batch."""
    whole = {kind: layer_ms(kind, batch) for kind in PEAK_FLOPS}
    return {
        "layers": LAYERS,
        "batch": batch,
        "survival": [round(1 - (1 - LAST_ALIVE) * n / LAYERS, 6) for n in range(LAYERS + 1)],
        "layer_ms": {kind: [round(ms, 6)] * LAYERS for kind, ms in whole.items()},
        "ramp_ms": {kind: round(RAMP * ms, 6) for kind, ms in whole.items()},
        "transfer_ms": round(1e3 * 4 * TOKENS * WIDTH * batch / PCIE_BYTES_PER_S, 6),
        "time_share": {
            kind: {str(n): round(layer_ms(kind, n) / ms, 6) for n in range(1, batch + 1)}
            for kind, ms in whole.items()
        },
    }


def model(batch: int) -> StageProfile:
    """The same, checked."""
    return profile_from(profile(batch), "profile")


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
    (folder / "bert_base.json").write_text(json.dumps(profile(8), indent=1) + "\n")
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
    batches, requests = ((1, 8), 5_000) if given.quick else ((1, 2, 4, 8, 16, 32), 50_000)
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
