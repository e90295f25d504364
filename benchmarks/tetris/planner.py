"""How long planning takes, beside the TETRIS paper's table 1.

    python benchmarks/tetris/planner.py [--quick]

Models of 12, 24 and 50 layers on 16 devices of one kind and on 6 + 8 + 15 of three, at a lax SLO,
at SLOs that bind, for the lowest cost, and at one that nothing meets. The layers' times are made
up. The paper's BERT-Base has 12 layers and BERT-Large 24; its machine is not told. CPU time tells
planning apart from what else the machine did; the slowest answer stands beside the aim at the end.
"""

from __future__ import annotations

import argparse
import statistics
import time

from backends.tetris.planner import StagePlan, plan
from backends.tetris.profile import DeviceCluster, StageProfile, Wanted, cluster_from, profile_from
from harness.core.errors import UserError

PAPER_S = {
    "one kind": {"ResNet50": 1.13, "BERT-Base": 0.87, "BERT-Large": 1.53},
    "three kinds": {"ResNet50": 2.62, "BERT-Base": 2.09, "BERT-Large": 3.63},
}
SPEED = {"V100": 1.0, "P100": 1.9, "K80": 4.1}
PRICE = {"V100": 3.0, "P100": 1.5, "K80": 0.5}
CLUSTERS = {"one kind": {"V100": 16}, "three kinds": {"V100": 6, "P100": 8, "K80": 15}}
LAYERS = (12, 24, 50)
AIM_MS = {"one kind": 50, "three kinds": 200}


def profile(layers: int) -> StageProfile:
    """Layers that differ a little, at batch 8; 30% of the inputs leave nowhere."""
    wobble = [1 + 0.05 * ((7 * n) % 5 - 2) for n in range(layers)]
    told = {
        "layers": layers,
        "batch": 8,
        "survival": [1 - 0.7 * n / layers for n in range(layers + 1)],
        "layer_ms": {kind: [slow * w for w in wobble] for kind, slow in SPEED.items()},
        "ramp_ms": {kind: 0.1 * slow for kind, slow in SPEED.items()},
        "transfer_ms": 0.4,
    }
    return profile_from(told, "profile")


def wishes(layers: int) -> dict[str, Wanted]:
    """What is asked; one pass over all layers on the fastest kind takes a millisecond a layer."""
    return {
        "lax SLO": Wanted(100.0 * layers),
        "SLO 2.5 passes": Wanted(2.5 * layers),
        "SLO 1.6 passes": Wanted(1.6 * layers),
        "SLO 1.2 passes": Wanted(1.2 * layers),
        "SLO half a pass": Wanted(0.5 * layers),
        "lowest cost": Wanted(100.0 * layers, target=24_000 / layers),
        "lowest cost, SLO 1.6": Wanted(1.6 * layers, target=24_000 / layers),
    }


def timed(
    model: StageProfile, cluster: DeviceCluster, wanted: Wanted, repeats: int
) -> tuple[float, float, StagePlan | None]:
    """Median seconds by the clock and of the processor, and the plan."""
    walls, cpus, found = [], [], None
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            found = plan(model, cluster, wanted)
        except UserError:
            found = None
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return statistics.median(walls), statistics.median(cpus), found


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the planner.")
    parser.add_argument("--quick", action="store_true", help="once, 12 layers alone")
    quick = parser.parse_args().quick
    for name, devices in CLUSTERS.items():
        paper = ", ".join(f"{model} {seconds}" for model, seconds in PAPER_S[name].items())
        print(f"{name}: {devices}; the paper's table 1, seconds: {paper}")
        print("layers  asked                  ms   CPU ms  stages  paper's least over ours")
        slowest = dict.fromkeys(LAYERS[:1] if quick else LAYERS, 0.0)
        for layers in slowest:
            model = profile(layers)
            price = {kind: PRICE[kind] for kind in devices}
            cluster = cluster_from({"devices": devices, "price": price}, "cluster", model)
            for asked, wanted in wishes(layers).items():
                wall, cpu, found = timed(model, cluster, wanted, 1 if quick else 5)
                stages = "none" if found is None else str(len(found.stages))
                slowest[layers] = max(slowest[layers], 1e3 * cpu)
                ratio = min(PAPER_S[name].values()) / wall
                row = f"{layers:6}  {asked:20} {1e3 * wall:7.1f} {1e3 * cpu:7.1f}  {stages:>6}"
                print(f"{row}  {ratio:6.0f}", flush=True)
        told = ", ".join(f"{layers} layers {ms:.1f}" for layers, ms in slowest.items())
        print(f"slowest, CPU ms: {told}; aim: under {AIM_MS[name]}")


if __name__ == "__main__":
    main()
