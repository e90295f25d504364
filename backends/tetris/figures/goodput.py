"""Goodput of systems on a cluster, simulated once for all figures that ask for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import product

from backends.tetris.figures.in_turn import splits_in_turn
from backends.tetris.figures.point import Devices, FigurePoint
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import plan
from backends.tetris.profile import Wanted
from backends.tetris.simulation.compare import SimulatedLoad, SimulatedSystem, compare
from harness.core.errors import UserError

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
        return baselines(replace(alone, wrapper=True), cluster, batch)[system]
    every = ((_part(cluster, copies), copies) for copies in point.copies)
    found = (copies * piped(alone, part, batch) for part, copies in every if part)
    return max(found, default=0.0)


def _part(cluster: Devices, copies: int) -> Devices:
    return tuple((kind, count // copies) for kind, count in cluster if count >= copies)


@cache
def piped(point: FigurePoint, cluster: Devices, batch: int) -> float:
    """Of the pipeline on one cluster, in closed loop with the best number of clients; 0 where no
    plan meets the SLO."""
    try:
        return next(_systems(point, cluster, batch, staged=True)).goodput_per_s
    except UserError:
        return 0.0


@cache
def baselines(point: FigurePoint, cluster: Devices, batch: int) -> Mapping[str, float]:
    """Of each data-parallel system; 0 for all where not even one pass meets the SLO."""
    try:
        systems = [*_systems(point, cluster, batch, staged=False)]
    except UserError:
        return dict.fromkeys(SYSTEMS, 0.0)
    return {one.name: one.goodput_per_s for one in systems}


def one_device(point: FigurePoint, system: str, kind: str, batch: int) -> float:
    """Goodput of one device of a kind; more of them bring in proportion."""
    alone = replace(point, clusters=(), batches=(), copies=(), wrapper=True)
    return baselines(alone, ((kind, 8),), batch)[system] / 8


def _systems(
    point: FigurePoint, cluster: Devices, batch: int, staged: bool
) -> Iterator[SimulatedSystem]:
    profile = point.profile(batch, staged)
    there = point.model.cluster(dict(cluster))
    found = plan(profile, there, Wanted(point.slo_ms))
    inputs = point.leaving(point.requests)
    return compare(StageTimes(profile), there, found, inputs, SimulatedLoad(), point.slo_ms)
