"""The live pipeline beside the simulated one, for the same requests."""

from __future__ import annotations

from backends.tetris.live.devices import start_ray
from backends.tetris.live.pipeline_driver import LiveFaults, LivePipeline
from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import StagePlan
from backends.tetris.simulation.compare import SimulatedLoad, SimulatedSystem, summary


def live_system(
    times: StageTimes,
    plan: StagePlan,
    decisions: LeaveDecisions,
    load: SimulatedLoad,
    simulated: SimulatedSystem,
    limit_ms: float,
    address: str | None = None,
) -> tuple[SimulatedSystem, LiveFaults]:
    """The plan on emulated devices, with the load that `simulated` had, and what went wrong. Its
    devices compute nothing, so that its provenance is a simulation's as well.

    Raises:
        UserError: where Ray is not installed, or none answers at `address` in 10 seconds, and for
            devices that do not start.
    """
    ray = start_ray(address)
    try:
        live = LivePipeline(ray, times, plan, limit_ms)
        clients = simulated.clients
        arrivals = load.arrivals(len(decisions)) if clients is None else clients
        run, faults = live.run(decisions, arrivals)
        live.close()
    finally:
        ray.shutdown()
    return summary("pipeline, live", [run], limit_ms, clients), faults
