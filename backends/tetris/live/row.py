"""The live pipeline beside the simulated one, for the same requests."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout

from backends.tetris.live.devices import start_ray
from backends.tetris.live.live_run import LiveFaults
from backends.tetris.live.pipeline_driver import LivePipeline
from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.pipeline.stragglers import Slowdown
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.planner import StagePlan
from backends.tetris.simulation.changing import ChangingPlan
from backends.tetris.simulation.compare import SimulatedLoad, SimulatedSystem, summary

Live = tuple[SimulatedSystem, LiveFaults, ChangingPlan | None]


def live_system(
    times: StageTimes,
    plan: StagePlan,
    decisions: LeaveDecisions,
    load: SimulatedLoad,
    simulated: SimulatedSystem,
    limit_ms: float,
    address: str | None = None,
    slow: Mapping[str, Slowdown] | None = None,
    planner: WindowPlanner | None = None,
    window_s: float = 0.0,
) -> Live:
    """The plan on emulated devices, with the load that `simulated` had, what went wrong, and its
    plans where there is a `planner`, which makes one at the end of each window. The devices compute
    nothing, so that its provenance is a simulation's as well.

    Raises:
        UserError: where Ray is not installed, or none answers at `address` in 10 seconds, and for
            devices that do not start.
    """
    ray = start_ray(address)
    try:
        devices = None if planner is None else planner.cluster.names()
        live = LivePipeline(ray, times, plan, limit_ms, devices)
        clients = simulated.clients
        arrivals = load.arrivals(len(decisions)) if clients is None else clients
        changing = None
        # Ray tells deaths on standard output, which is the answer's
        with redirect_stdout(sys.stderr):
            if planner is None:
                run, faults = live.run(decisions, arrivals, slow)
            else:
                run, faults, changing = live.run_planned_again(
                    planner, decisions, arrivals, window_s, slow
                )
        live.close()
    finally:
        ray.shutdown()
    return summary("pipeline, live", [run], limit_ms, clients), faults, changing
