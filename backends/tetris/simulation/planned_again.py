"""The pipeline that is planned again at the ends of windows, beside the one that keeps its plan."""

from __future__ import annotations

from collections.abc import Mapping

from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stragglers import Slowdown
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.simulation.changing import ChangingPlan
from backends.tetris.simulation.compare import SimulatedLoad, SimulatedSystem, summary
from backends.tetris.simulation.replanning import ReplanningSimulation


def planned_again(
    planner: WindowPlanner,
    decisions: LeaveDecisions,
    load: SimulatedLoad,
    kept: SimulatedSystem,
    limit_ms: float,
    window_s: float,
    slow: Mapping[str, Slowdown] | None = None,
) -> tuple[SimulatedSystem, ChangingPlan]:
    """What it made of the load that `kept` had, and its plans."""
    arrivals = load.arrivals(len(decisions)) if kept.clients is None else kept.clients
    run = ReplanningSimulation(planner, decisions, arrivals, limit_ms, slow, window_s)
    row = summary("pipeline, planned again", [run.run()], limit_ms, kept.clients)
    return row, run.changing
