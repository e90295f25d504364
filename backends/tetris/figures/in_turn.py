"""TETRIS with model parallelism off: the splits one after the other on each device."""

from __future__ import annotations

import itertools
import math
from functools import cache, partial

from backends.tetris.figures.point import Devices, FigurePoint
from backends.tetris.pipeline.fusion import FusionQueue
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import plan_or_none
from backends.tetris.profile import Wanted
from backends.tetris.simulation.compare import CLIENTS, least_requests, summary
from backends.tetris.simulation.events import LaneSimulation
from backends.tetris.simulation.lanes import Crew, Lane, Layout


@cache
def splits_in_turn(point: FigurePoint, cluster: Devices, batch: int) -> float:
    """Goodput of the planned splits where each device runs so many copies of the first that one
    batch survives to the last, with the best number of clients; 0 where no plan meets the SLO."""
    profile, there = point.profile(batch, staged=True), point.model.cluster(dict(cluster))
    times = StageTimes(profile)
    found = plan_or_none(profile, there, Wanted(point.slo_ms))
    if found is None:
        return 0.0
    ends = [one.end for one in found.stages]
    copies = max(round(1 / profile.survival[found.stages[-1].first]), 1)
    work = partial(in_turn, times, [0, *ends])
    slowest = max(there.devices, key=lambda kind: sum(profile.layer_ms[kind]))
    ahead_ms = copies * times.stage_ms(slowest, 0, profile.layers, batch)
    held = copies * batch * sum(count for _, count in cluster)
    inputs = point.leaving(point.asked(least_requests(1, held)))

    def goodput(clients: int) -> float:
        lane = Lane(profile.layers, FusionQueue(copies * batch, ahead_ms), work)
        crews = [Crew(k, [f"{k}-{n}" for n in range(count)], [lane]) for k, count in cluster]
        layout = Layout((lane,), tuple(crews), tuple(ends[:-1]))
        run = LaneSimulation(layout, times, inputs, clients, point.slo_ms).run()
        return summary("", [run], point.slo_ms, clients).goodput_per_s

    return max(goodput(math.ceil(over * held)) for over in CLIENTS)


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
