"""Goodput of systems on a cluster, simulated once for all figures that ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

from backends.tetris.figures.in_turn import splits_in_turn
from backends.tetris.figures.point import Devices, FigurePoint
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import plan_or_none
from backends.tetris.profile import DeviceCluster, StageProfile, Wanted
from backends.tetris.simulation.compare import SimulatedLoad, SystemRuns, least_requests

PIPELINE, PLAIN, SHRINKING, RULE = "pipeline", "plain", "shrinking batch", "batch rule"
REGROUPED, IN_TURN = "regrouping in place", "splits in turn"
SYSTEMS = (PIPELINE, PLAIN, SHRINKING, RULE, REGROUPED, IN_TURN)


def best(point: FigurePoint, system: str) -> float:
    """Requests a second within the SLO: of the point's clusters, batches and, for the pipeline,
    copies the best. 0 where nothing meets the SLO."""
    return max(
        _goodput(point, system, cluster, batch)
        for cluster, batch in product(point.clusters, point.batches)
    )


def _goodput(point: FigurePoint, system: str, cluster: Devices, batch: int) -> float:
    alone = replace(point, clusters=(), batches=(), copies=())
    if system == IN_TURN:
        return splits_in_turn(alone, cluster, batch)
    if system != PIPELINE:
        # baselines run no wrapper
        return baseline(replace(alone, wrapper=True), system, cluster, batch)
    every = ((_part(cluster, copies), copies) for copies in point.copies)
    found = (copies * piped(alone, part, batch) for part, copies in every if part)
    return max(found, default=0.0)


def asked_plans(point: FigurePoint, system: str) -> Iterator[tuple[StageProfile, DeviceCluster]]:
    """What a system that is planned asks the planner for at a point."""
    copies = point.copies if system == PIPELINE else (1,)
    for cluster, batch, count in product(point.clusters, point.batches, copies):
        if part := _part(cluster, count):
            yield point.profile(batch, staged=True), point.model.cluster(dict(part))


def _part(cluster: Devices, copies: int) -> Devices:
    return tuple((kind, count // copies) for kind, count in cluster if count >= copies)


@cache
def piped(point: FigurePoint, cluster: Devices, batch: int) -> float:
    """Of the pipeline on one cluster, in closed loop with the best number of clients; 0 where no
    plan meets the SLO."""
    profile = point.profile(batch, staged=True)
    there = point.model.cluster(dict(cluster))
    found = plan_or_none(profile, there, Wanted(point.slo_ms))
    return 0.0 if found is None else _runs(point, profile, there).piped(found).goodput_per_s


@cache
def baseline(point: FigurePoint, system: str, cluster: Devices, batch: int) -> float:
    """Of a data-parallel system, which nobody plans, in the same way."""
    there = point.model.cluster(dict(cluster))
    runs = _runs(point, point.profile(batch, staged=False), there)
    return runs.baseline(system).goodput_per_s


def one_device(point: FigurePoint, system: str, kind: str, batch: int) -> float:
    """Goodput of one device of a kind; more of them bring in proportion."""
    alone = replace(point, clusters=(), batches=(), copies=(), wrapper=True)
    return baseline(alone, system, ((kind, 8),), batch) / 8


def _runs(point: FigurePoint, profile: StageProfile, there: DeviceCluster) -> SystemRuns:
    needed = least_requests(sum(there.devices.values()), profile.batch)
    inputs = point.leaving(point.asked(needed))
    return SystemRuns(StageTimes(profile), there.devices, inputs, SimulatedLoad(), point.slo_ms)
