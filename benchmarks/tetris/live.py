"""The simulator and the plan against live systems: real Ray actors on emulated devices.

    python benchmarks/tetris/live.py [--quick] [--scale X ...] [--devices N] [--requests N]

BERT-Base at batch 8 on V100, times as in `paper.py` and X times as long: what Ray, the driver and a
crowded machine add is the same for every X, so that a device many times slower shows whether the
rules agree, and X = 1 what Ray costs. For each system the simulator's goodput over the live one's;
live, the pipeline's over each baseline's, beside the paper's. All have the provenance 'simulation':
nothing is computed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from backends.tetris.live.devices import start_ray
from backends.tetris.live.live_run import LiveRun
from backends.tetris.live.pipeline_driver import LivePipeline
from backends.tetris.pipeline.leaving import drawn
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import plan
from backends.tetris.profile import Wanted, cluster_from
from backends.tetris.simulation.compare import SimulatedSystem, summary
from backends.tetris.simulation.events import LaneSimulation, Served
from backends.tetris.simulation.lanes import Layout
from backends.tetris.simulation.layouts import data_parallel, pipeline
from benchmarks.tetris import paper
from benchmarks.tetris.nothing_lost import slower

BATCH = 8
BASELINES = ("plain", "shrinking batch")


@dataclass(frozen=True, slots=True)
class LiveAndSimulated:
    """What one system made of the same requests."""

    live: SimulatedSystem
    simulated: SimulatedSystem

    @property
    def ratio(self) -> float:
        """Simulated over live goodput."""
        return self.simulated.goodput_per_s / self.live.goodput_per_s


def measured(
    ray: Any, scale: float, devices: int, requests: int
) -> tuple[dict[str, LiveAndSimulated], float]:
    """Each system by name, and the goodput that was planned."""
    model = slower(paper.model(BATCH), scale)
    told = {"devices": {"V100": devices}, "price": {"V100": paper.PRICE["V100"]}}
    cluster, limit_ms = cluster_from(told, "cluster", model), 10 * paper.SLO_MS * scale
    found, times = plan(model, cluster, Wanted(limit_ms)), StageTimes(model)
    layouts: dict[str, Callable[[], Layout]] = {"pipeline": partial(pipeline, times, found)}
    for name in BASELINES:
        layouts[name] = partial(data_parallel, times, {"V100": devices}, name)
    inputs, clients = drawn(model.survival, requests, 0), 3 * BATCH * devices

    def told_of(run: Served) -> SimulatedSystem:
        return summary("", [run], limit_ms, clients)

    live, systems = LivePipeline(ray, times, found, limit_ms, cluster.names()), {}
    for name, layout in layouts.items():
        run = LiveRun(live, layout(), inputs, clients).served()
        guess = LaneSimulation(layout(), times, inputs, clients, limit_ms).run()
        systems[name] = LiveAndSimulated(told_of(run), told_of(guess))
    live.close()
    return systems, found.goodput_per_s


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--quick", action="store_true", help="few requests, one scale")
    asked.add_argument("--scale", type=float, nargs="+", default=[1.0, 4.0, 16.0])
    asked.add_argument("--devices", type=int, default=4)
    asked.add_argument("--requests", type=int, default=1_500)
    given = asked.parse_args()
    scales, requests = ([8.0], 200) if given.quick else (given.scale, given.requests)
    ray = start_ray()
    print(f"simulation: {given.devices} emulated V100; the paper's ratios on 16: {paper.PAPER}")
    print("scale  system           live/s  simulated over live  latency live, simulated (ms)")
    for scale in scales:
        systems, planned = measured(ray, scale, given.devices, requests)
        for name, one in systems.items():
            waits = f"{one.live.latency_ms_mean:.0f}, {one.simulated.latency_ms_mean:.0f}"
            row = f"{scale:5g}  {name:15} {one.live.goodput_per_s:7.1f}  {one.ratio:19.3f}"
            print(f"{row}  {waits}", flush=True)
        piped, guess = (
            getattr(systems["pipeline"], what).goodput_per_s for what in ("live", "simulated")
        )
        over = [
            f"{name} {piped / systems[name].live.goodput_per_s:.2f} (simulated"
            f" {guess / systems[name].simulated.goodput_per_s:.2f})"
            for name in BASELINES
        ]
        print(f"       pipeline over {', '.join(over)}; planned over live {planned / piped:.3f}")
    ray.shutdown()


if __name__ == "__main__":
    main()
