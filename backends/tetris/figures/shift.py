"""A workload that shifts from one mix of easy and hard inputs to the next."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np

from backends.tetris.figures.goodput import PIPELINE, PLAIN, SHRINKING
from backends.tetris.figures.point import FigurePoint, mixed
from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.planner import plan_or_none
from backends.tetris.profile import DeviceCluster, StageProfile, Wanted
from backends.tetris.simulation.compare import least_requests
from backends.tetris.simulation.events import LaneSimulation, Served
from backends.tetris.simulation.layouts import data_parallel, pipeline
from backends.tetris.simulation.replanning import ReplanningSimulation

AGAIN = "pipeline planned again"
SHIFTED = (PIPELINE, AGAIN, PLAIN, SHRINKING)
CLIENTS = 2
"""Over what all devices hold at once."""


def goodput_by_mix(
    point: FigurePoint, system: str, mixes: tuple[float, ...], window_s: float
) -> list[float]:
    """Answers within the SLO a second while each mix is asked, `point.asked` of each; mixes are
    shares of easy inputs. The pipeline is planned for the first, once or at each window's end. 0
    where nothing meets the SLO with `CLIENTS`."""
    alone = replace(point, copies=())
    return list(_by_mix(alone, system, mixes, window_s))


@cache
def _by_mix(
    point: FigurePoint, system: str, mixes: tuple[float, ...], window_s: float
) -> tuple[float, ...]:
    held = point.batches[0] * sum(count for _, count in point.clusters[0])
    clients = CLIENTS * held
    point = replace(point, requests=point.asked(least_requests(1, held, clients=clients)))
    run = _run(point, system, mixes, window_s, clients)
    if run is None:
        return (0.0,) * len(mixes)
    starts = [*run.asked_ms[:: point.requests], run.asked_ms[-1]]
    good = run.answered_ms[run.answered_ms - run.asked_ms <= point.slo_ms]
    counts = (((good > a) & (good <= b)).sum() / (b - a) for a, b in pairwise(starts))
    return tuple(float(1e3 * count) for count in counts)


def _run(
    point: FigurePoint, system: str, mixes: tuple[float, ...], window_s: float, clients: int
) -> Served | None:
    """None where no plan meets the SLO."""
    inputs, survival = _workload(point, mixes)
    (cluster,) = point.clusters
    profile = _profile(point, survival)
    there, times = point.model.cluster(dict(cluster)), StageTimes(profile)
    if system not in (AGAIN, PIPELINE):
        made = data_parallel(times, there.devices, system)
        return LaneSimulation(made, times, inputs, clients, point.slo_ms).run()
    wanted = Wanted(point.slo_ms)
    first = plan_or_none(profile, there, wanted)
    if first is None:
        return None
    if system == PIPELINE:
        made = pipeline(times, first)
        return LaneSimulation(made, times, inputs, clients, point.slo_ms).run()
    planner = WindowPlanner(profile, there, wanted, first)
    again = ReplanningSimulation(planner, inputs, clients, point.slo_ms, window_s=window_s)
    return again.run()


def asked_plan(point: FigurePoint, mixes: tuple[float, ...]) -> tuple[StageProfile, DeviceCluster]:
    """What the pipeline is planned for: the first mix, on the point's one cluster."""
    ((cluster,), survival) = point.clusters, _workload(point, mixes)[1]
    return _profile(point, survival), point.model.cluster(dict(cluster))


def _profile(point: FigurePoint, survival: tuple[float, ...]) -> StageProfile:
    (batch,) = point.batches
    return replace(point.profile(batch, staged=False), survival=survival)


def _workload(
    point: FigurePoint, mixes: tuple[float, ...]
) -> tuple[LeaveDecisions, tuple[float, ...]]:
    """All inputs, and the survival of the first mix."""
    layers = point.shape().layers
    found = mixed(layers, mixes[0], point.requests, 0)
    survival = np.minimum.accumulate(found.alive()).tolist()
    for seed, easy in enumerate(mixes[1:], 1):
        found = found.then(mixed(layers, easy, point.requests, seed))
    return found, tuple(survival)
