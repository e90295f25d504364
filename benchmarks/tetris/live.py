"""The simulator and the plan against the live pipeline: real Ray actors on emulated devices.

    python benchmarks/tetris/live.py [--quick] [--scale X] [--requests N]

BERT-Base at batch 8 on four V100, times as in `paper.py` and X times as long: what Ray, the driver
and a crowded machine add is the same for every X, so that a device many times slower shows whether
the rules agree, and X = 1 what Ray costs. Ratios are the simulator's and the plan's goodput over
the live one's. Both have the provenance 'simulation': nothing is computed.
"""

from __future__ import annotations

import argparse

from backends.tetris.live.devices import start_ray
from backends.tetris.live.pipeline_driver import LivePipeline
from backends.tetris.pipeline.leaving import drawn
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import plan
from backends.tetris.profile import Wanted, cluster_from, profile_from
from backends.tetris.simulation.compare import summary
from backends.tetris.simulation.events import LaneSimulation
from backends.tetris.simulation.layouts import pipeline
from benchmarks.tetris import paper

DEVICES = 4


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--quick", action="store_true", help="one scale, few requests")
    asked.add_argument("--scale", type=float, nargs="+", default=[1.0, 4.0, 16.0])
    asked.add_argument("--requests", type=int, default=1_500)
    given = asked.parse_args()
    scales, count = ([8.0], 200) if given.quick else (given.scale, given.requests)
    ray = start_ray()
    print("scale   live/s  simulated over live  planned over live  latency live, simulated (ms)")
    for scale in scales:
        told = paper.profile(8)
        for key in ("layer_ms", "ramp_ms"):
            told[key] = {
                kind: [scale * one for one in ms] if isinstance(ms, list) else scale * ms
                for kind, ms in told[key].items()
            }
        told["transfer_ms"] *= scale
        model = profile_from(told, "profile")
        devices = {"devices": {"V100": DEVICES}, "price": {"V100": paper.PRICE["V100"]}}
        cluster = cluster_from(devices, "cluster", model)
        limit_ms = 10 * paper.SLO_MS * scale
        found, times = plan(model, cluster, Wanted(limit_ms)), StageTimes(model)
        inputs, clients = drawn(model.survival, count, 0), 3 * 8 * DEVICES
        made = LivePipeline(ray, times, found, limit_ms)
        run, _ = made.run(inputs, clients)
        made.close()
        guess = LaneSimulation(pipeline(times, found), times, inputs, clients, limit_ms).run()
        live, simulated = (summary("", [one], limit_ms, clients) for one in (run, guess))
        ratios = [
            one / live.goodput_per_s for one in (simulated.goodput_per_s, found.goodput_per_s)
        ]
        waits = f"{live.latency_ms_mean:.0f}, {simulated.latency_ms_mean:.0f}"
        told_ratios = f"{ratios[0]:19.3f}  {ratios[1]:17.3f}"
        print(f"{scale:5g} {live.goodput_per_s:8.1f}  {told_ratios}  {waits}", flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
