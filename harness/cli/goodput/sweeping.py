"""A ``sweep`` of an experiment: each system from idle to saturation, on one engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.cli.goodput.kept import KeptAnswer
from harness.cli.goodput.probing import (
    IDLE_REQUESTS,
    MOST_LATE,
    FailedProbeError,
    ProbedLoad,
    ProbedSystem,
    Prober,
    RefusedProbeError,
    described,
    most_requests,
    systems,
)
from harness.core.nouns import Load
from harness.experiment.config import Experiment
from harness.measure.sweep import SweepEvent
from results.goodput.saturation import HALF, CurvePoint, LoadCurve, kept_up, probe_requests
from results.goodput.search import bracket_of
from results.goodput.stored import CURVES
from results.metrics import latency
from results.store.folder import Store

IDLE = Load("closed", concurrency=1)
START = 2.0
"""The first rate, in requests that an idle system answers one after the other in that time."""


@dataclass(slots=True)
class _Loaded:
    """One load of a system, a trial a repeat."""

    load: Load
    requests: int
    kept_up: list[bool] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    stored: int = 0
    """Trials that were there."""
    came_about: list[float] = field(default_factory=list)
    """Rates that the arrivals came to: of some hundred, 15% off what was asked for is usual."""
    late: bool = False
    """Whether the client was, in any repeat: such a load says nothing of the system."""

    @property
    def is_kept(self) -> bool:
        """As most of its repeats say; where they are even, as the one by which the search went."""
        for_it, against = self.kept_up.count(True), self.kept_up.count(False)
        return for_it > against or (for_it == against and self.kept_up[0])

    def add(self, probed: ProbedLoad) -> None:
        self.keys.append(probed.record.key)
        self.stored += probed.was_stored
        self.late |= self.load.is_open and probed.is_late
        requests = probed.requests
        rate = latency.arrival_rate_per_s(requests)
        self.came_about.append(rate if rate is not None else self.load.rate or 0.0)
        left = requests.commit_ns[requests.last_commit()]
        self.kept_up.append(not self.load.is_open or kept_up(requests.scheduled_ns, left))


@dataclass(slots=True)
class SweptSystem:
    """What came of one system."""

    system: ProbedSystem
    points: list[_Loaded]
    ended: str
    failed: bool = False
    refusal: str = ""
    """What its engine says of input that it does not take."""

    @property
    def stored(self) -> int:
        """Trials that were there before."""
        return sum(point.stored for point in self.points)

    @property
    def measured(self) -> int:
        """Trials that were run now, and ended well."""
        return sum(len(point.keys) for point in self.points) - self.stored

    def line(self) -> str:
        """For people."""
        name, (low, high) = self.system.label(), self._bracket()
        told = f"{len(self.points)} loads; {self.ended}"
        if high is None:
            return (
                f"{name}: kept up with {low:.3g}/s and less; {told}" if low else f"{name}: {told}"
            )
        if low is None:
            return f"{name}: saturated already at {high:.3g}/s; {told}"
        return f"{name}: saturated between {low:.3g} and {high:.3g}/s; {told}"

    def plain(self) -> dict[str, Any]:
        """As sweep.json has it."""
        low, high = self._bracket()
        return {
            **described(self.system),
            "low_per_s": low,
            "high_per_s": high,
            "ended": self.ended,
            "points": [
                {"rate": p.load.rate, "kept_up": p.is_kept, "keys": p.keys} for p in self.points
            ],
        }

    def _bracket(self) -> tuple[float | None, float | None]:
        """Of the rates that came about, which are what the system had to keep up with."""
        points = [p for p in self.points if p.load.is_open and not p.late]
        rates = [(float(np.median(p.came_about)), float(p.is_kept), 1) for p in points]
        return bracket_of(rates, HALF)


def sweep_rates(
    store: Store,
    experiment: Experiment,
    only: str | None,
    events: Callable[[SweepEvent], None] | None = None,
) -> Iterator[SweptSystem]:
    """Each system of an experiment that has a sweep, as it is done; what is stored is not measured
    again, and what an engine refuses or fails at costs its own system alone. `experiment`: as the
    file has it."""
    kept = KeptAnswer(store.path, {}, CURVES, only)
    with Prober(store, experiment, kept.began, events) as prober:
        for system in systems(experiment, only):
            done = _swept(prober, system, experiment)
            kept.ended(done.plain())
            yield done


def _swept(prober: Prober, system: ProbedSystem, experiment: Experiment) -> SweptSystem:
    assert experiment.sweep is not None
    done = SweptSystem(system, [], "as many as asked for")
    try:
        done.ended = _search(prober, system, experiment, done.points) or done.ended
        for repeat in range(1, experiment.repeats):
            # to and fro, so that a machine that drifts does not bend the curve
            for point in done.points[:: -1 if repeat % 2 else 1]:
                _measure(prober, system, point, repeat)
    except RefusedProbeError as error:
        done.ended, done.failed, done.refusal = f"refused: {error}", True, str(error)
    except FailedProbeError as error:
        done.ended, done.failed = f"a trial failed: {error}", True
    done.points = [point for point in done.points if point.keys]
    return done


def _search(
    prober: Prober, system: ProbedSystem, experiment: Experiment, points: list[_Loaded]
) -> str:
    """Fills `points`, the idle one first; returns why it ended early, if it did."""
    assert experiment.sweep is not None
    points.append(_Loaded(IDLE, IDLE_REQUESTS))
    alone_s = _median_s(_measure(prober, system, points[0]))
    if not alone_s > 0:
        return "no answer of an idle system takes any time"
    limits = experiment.limits
    most, limit = most_requests(system, limits.prompts, limits.bundled_rows)
    curve, late = LoadCurve(1 / (START * alone_s), experiment.sweep.points), 0
    while (rate := curve.next_rate()) is not None:
        rate = float(f"{rate:.4g}")
        count = probe_requests(experiment.requests, rate, alone_s)
        if count > most:
            return f"{rate:g}/s needs {count:,} requests; 'limits: {limit}' allows {most:,}"
        point = _Loaded(Load("poisson", rate=rate, redraw=experiment.sweep.redraw), count)
        points.append(point)
        probed = _measure(prober, system, point)
        if probed.is_late:
            late += 1
            # what a late client leaves waiting is no queue of the system's
            if late >= MOST_LATE or not point.is_kept:
                return f"the client was late at {rate:g}/s: more cannot be asked here"
        else:
            late = 0
        curve.add(CurvePoint(rate, _median_s(probed), point.is_kept))
    return ""


def _measure(prober: Prober, system: ProbedSystem, point: _Loaded, repeat: int = 0) -> ProbedLoad:
    probed = prober.run(prober.trial(system, point.load, 0, point.requests, repeat))
    point.add(probed)
    return probed


def _median_s(probed: ProbedLoad) -> float:
    times = latency.e2e_s(probed.requests)
    return float(np.median(times)) if len(times) else float("nan")
