"""Goodput of systems on a cluster, simulated once for all figures that ask for it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache, partial

from backends.tetris.pipeline.fusion import FusionQueue
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import plan
from backends.tetris.profile import DeviceCluster, Wanted, cluster_from
from backends.tetris.simulation.compare import SimulatedLoad, compare, summary
from backends.tetris.simulation.events import LaneSimulation
from backends.tetris.simulation.lanes import Crew, Lane, Layout
from benchmarks.tetris import paper
from benchmarks.tetris.paper_figures import models
from harness.core.errors import UserError

Devices = tuple[tuple[str, int], ...]
V100: Devices = (("V100", 16),)
MIXED: Devices = (("V100", 6), ("P100", 8), ("K80", 15))
SAME_PRICE: tuple[Devices, ...] = (V100, (("P100", 26),), (("K80", 47),), MIXED)
"""0.013 $ a second each."""
TETRIS, PLAIN, SHRINKING, RULE = "pipeline", "plain", "shrinking batch", "batch rule"
REGROUPED = "regrouping in place"
SYSTEMS = (TETRIS, PLAIN, SHRINKING, RULE, REGROUPED)


@dataclass(slots=True)
class RunSize:
    """Requests of a run."""

    requests: int = 10_000


SIZE = RunSize()


def cluster(model: str, devices: Devices) -> DeviceCluster:
    """Devices with the paper's prices."""
    prices = {kind: paper.PRICE[kind] for kind, _ in devices}
    told = {"devices": dict(devices), "price": prices}
    return cluster_from(told, "cluster", models.variant(model, 1))


@cache
def goodput(
    model: str, devices: Devices, batch: int, slo_ms: float = paper.SLO_MS
) -> dict[str, float]:
    """By system, closed loop with the number of clients that is best for each; 0 for all where no
    plan meets the SLO, not one of a single stage."""
    profile, there = models.variant(model, batch), cluster(model, devices)
    inputs = models.inputs(model, SIZE.requests)
    try:
        found = plan(profile, there, Wanted(slo_ms))
    except UserError:
        return dict.fromkeys(SYSTEMS, 0.0)
    systems = compare(StageTimes(profile), there, found, inputs, SimulatedLoad(), slo_ms)
    return {one.name: one.goodput_per_s for one in systems}


@cache
def staged(model: str, devices: Devices, batch: int) -> float:
    """Of the pipeline alone."""
    profile, there = models.variant(model, batch), cluster(model, devices)
    found = plan(profile, there, Wanted(paper.SLO_MS))
    inputs = models.inputs(model, SIZE.requests)
    systems = compare(StageTimes(profile), there, found, inputs, SimulatedLoad(), paper.SLO_MS)
    return next(systems).goodput_per_s


def one_device(model: str, kind: str, batch: int) -> dict[str, float]:
    """Of each data-parallel system, for one device of a kind; more of them bring in proportion."""
    found = goodput(model, ((kind, 8),), batch)
    return {name: per_s / 8 for name, per_s in found.items() if name != TETRIS}


def serial(devices: Devices, batch: int) -> float:
    """The pipeline's splits one after the other on each device, which runs so many copies of the
    first that one batch survives to the last: TETRIS with model parallelism off."""
    profile, there = models.variant("bert", batch), cluster("bert", devices)
    times, found = StageTimes(profile), plan(profile, there, Wanted(paper.SLO_MS))
    ends = [one.end for one in found.stages]
    copies = max(round(1 / profile.survival[found.stages[-1].first]), 1)
    work = partial(in_turn, times, [0, *ends])
    ahead_ms = copies * times.stage_ms("V100", 0, profile.layers, batch)
    lane = Lane(profile.layers, FusionQueue(copies * batch, ahead_ms), work)
    crews = [Crew(k, [f"{k}-{n}" for n in range(count)], [lane]) for k, count in devices]
    layout = Layout((lane,), tuple(crews), tuple(ends[:-1]))
    inputs = models.inputs("bert", SIZE.requests)
    clients = math.ceil(1.5 * copies * batch * sum(count for _, count in devices))
    run = LaneSimulation(layout, times, inputs, clients, paper.SLO_MS).run()
    return summary("", [run], paper.SLO_MS, clients).goodput_per_s


def in_turn(
    times: StageTimes, bounds: list[int], kind: str, requests: list[int], depths: list[int]
) -> tuple[float, list[float]]:
    """Splits between `bounds` one after the other: milliseconds in all, and when each request is
    answered."""
    at_ms, batch = 0.0, times.profile.batch
    answered = [0.0] * len(depths)
    for first, end in itertools.pairwise(bounds):
        here = [place for place, depth in enumerate(depths) if depth > first]
        whole, rest = divmod(len(here), batch)
        for inputs in [batch] * whole + ([rest] if rest else []):
            at_ms += times.stage_ms(kind, first, end, inputs)
        for place in here:
            answered[place] = at_ms
    return at_ms, answered


@cache
def cheapest(model: str, most: Devices, batch: int, rate: float) -> tuple[float, float]:
    """Price an hour of the cheapest pipeline that reaches a rate, out of so many devices, and the
    goodput that it has when it is simulated. Raises `UserError` where none does."""
    profile, there = models.variant(model, batch), cluster(model, most)
    found = plan(profile, there, Wanted(paper.SLO_MS, target=rate))
    inputs = models.inputs(model, SIZE.requests)
    systems = compare(StageTimes(profile), there, found, inputs, SimulatedLoad(), paper.SLO_MS)
    return found.cost, next(systems).goodput_per_s
