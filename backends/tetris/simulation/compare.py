"""The pipeline of a plan and its baselines on the same devices, for the same requests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.pipeline.stragglers import Slowdown
from backends.tetris.planner import StagePlan
from backends.tetris.profile import DeviceCluster
from backends.tetris.simulation import PROVENANCE
from backends.tetris.simulation.baselines import (
    BASELINES,
    REGROUPING,
    Cuts,
    regrouping_options,
    within_latencies,
)
from backends.tetris.simulation.events import LaneSimulation, Served
from backends.tetris.simulation.lanes import Layout
from backends.tetris.simulation.layouts import data_parallel, pipeline, regrouped_by_kind
from backends.tetris.simulation.segments import MOST_SEGMENTS

WARM = 0.2
"""Of a closed loop's time, before its goodput is counted."""
MOST_PILOTS, PILOT_FREE, UNTRIED = 10, 200_000, 2
"""Where the pilots of the system that needs the most have more than so many times the run's
requests, and so many besides, no system has any; so many clients, over what all devices hold at
once, are taken then."""
PILOT = 4_000
"""Requests of the runs that choose how many clients ask and where a device regroups."""
CLIENTS = (1.0, 1.5, 2.0, 3.0, 4.0)
"""In closed loop: clients tried, over the batches that all devices hold at once."""
NEAR = 0.98
"""Of pilots this near to the best the one with the fewest clients is chosen: more of them only wait
longer, up to where a small disturbance costs many the SLO."""

ROUNDS = 20
"""Requests that each client of a closed loop has at least. With fewer the beginning and the end,
where not every device has a batch, are much of the run."""
MOST_REQUESTS = 10_000_000

Make = Callable[[], Layout]
UnderCuts = Callable[[Sequence[int]], StageTimes]
_Setting = tuple[Make, int | None]


@dataclass(frozen=True, slots=True)
class SimulatedLoad:
    """Open loop at `rate` requests a second (Poisson), or closed loop with `clients`; with neither
    the closed loop whose number of clients gives each system the most goodput."""

    rate: float | None = None
    clients: int | None = None
    seed: int = 0

    def arrivals(self, count: int, place: int = 0) -> NDArray[np.float64]:
        """Milliseconds of the open loop's arrivals at one of the copies, (count,) ascending. They
        are drawn from another stream than who leaves where (`leaving.drawn`)."""
        assert self.rate is not None
        random = np.random.default_rng([self.seed, place, 1])
        return np.cumsum(random.exponential(1e3 / self.rate, count))


def least_requests(devices: int, batch: int, copies: int = 1, clients: int | None = None) -> int:
    """How many a closed loop needs at least for a number that is the system's: `ROUNDS` of each of
    its `clients`, or of as many as are tried."""
    most = math.ceil(max(CLIENTS) * devices * batch) * copies
    return ROUNDS * (most if clients is None else clients)


@dataclass(frozen=True, slots=True)
class SimulatedSystem:
    """What one system made of the load. Goodput is answers within the SLO a second. In open loop
    over the time from the first arrival to the last answer (docs/metrics.md); in closed loop, the
    paper's, while clients ask: after the first fifth and before the last request is asked. Latency
    is from the arrival on, in closed loop from the request. `batch` is the mean size that ran;
    `untried` says that pilots were too long to choose what a system chooses by them."""

    name: str
    goodput_per_s: float
    throughput_per_s: float
    within_slo: float
    latency_ms_mean: float
    latency_ms_p99: float
    batch: float
    clients: int | None
    requests: int
    predicted_per_s: float | None = None
    untried: bool = False

    def to_json(self) -> dict[str, Any]:
        """As `decodebench simulate --json` tells it."""
        told = {name: getattr(self, name) for name in self.__slots__}
        return {**told, "provenance": PROVENANCE}


def compare(
    times: StageTimes,
    cluster: DeviceCluster,
    plan: StagePlan,
    decisions: LeaveDecisions,
    load: SimulatedLoad,
    limit_ms: float,
    copies: int = 1,
    slow: Mapping[str, Slowdown] | None = None,
    under: UnderCuts | None = None,
) -> Iterator[SimulatedSystem]:
    """The pipeline first, then each baseline, as they are simulated.

    Args:
        limit_ms: the SLO; queues are flushed for it.
        copies: of the cluster and its plan, side by side; each has an equal share of the requests.
        slow: devices of each copy that are slower than their profile, in every system.
        under: `times` for who leaves when ramps at some cuts alone are on (their fills); None: as
            with all of them.
    """
    runs = SystemRuns(times, cluster.devices, decisions, load, limit_ms, copies, slow, under)
    yield runs.piped(plan)
    for name in BASELINES:
        yield runs.baseline(name)


class SystemRuns:
    """Runs systems on the requests, those of each copy after another; takes what `compare` does."""

    def __init__(
        self,
        times: StageTimes,
        devices: Mapping[str, int],
        decisions: LeaveDecisions,
        load: SimulatedLoad,
        limit_ms: float,
        copies: int = 1,
        slow: Mapping[str, Slowdown] | None = None,
        under: UnderCuts | None = None,
    ) -> None:
        self._slow, self._under, self._asked = slow, under, decisions if under else None
        self._devices = dict(devices)
        self._limit_ms, self._copies = limit_ms, copies
        self._load, self._times = load, times
        if load.rate is not None:
            self._load = SimulatedLoad(load.rate / copies, None, load.seed)
        self._parts = decisions.dealt(copies)
        given = load.rate is not None or load.clients is not None
        pilots = (MOST_SEGMENTS - 1) * len(devices) * (1 if given else len(CLIENTS))
        requests = pilots * len(self._pilot(sum(devices.values()) * times.profile.batch))
        self._pays = requests <= MOST_PILOTS * len(decisions) + PILOT_FREE

    def piped(self, plan: StagePlan) -> SimulatedSystem:
        """The pipeline of a plan."""
        devices = {one.device: 0 for one in plan.stages}
        for one in plan.stages:
            devices[one.device] += one.count
        own = self._under(plan.cuts) if self._under else self._times
        found = self._run("pipeline", [partial(pipeline, own, plan)], devices)
        return replace(found, predicted_per_s=plan.goodput_per_s * self._copies)

    def baseline(self, name: str) -> SimulatedSystem:
        """One of `BASELINES` on all devices."""
        if name == REGROUPING:
            return self._run(name, self._regrouped(), self._devices)
        make = partial(data_parallel, self._times, self._devices, name)
        return self._run(name, [make], self._devices)

    def _regrouped(self) -> list[Make]:
        """With the cuts that may be best, those of the least work last."""
        options = regrouping_options(self._times, list(self._devices), self._asked)
        mixes = [one for one in within_latencies(options) if any(one.values())]
        return [
            partial(regrouped_by_kind, self._times_of(mix), self._devices, mix)
            for mix in mixes or [dict.fromkeys(self._devices, ())]
        ]

    def _times_of(self, mix: Mapping[str, Cuts]) -> dict[str, StageTimes]:
        under = self._under
        return {kind: under(cuts) if under else self._times for kind, cuts in mix.items()}

    def _run(self, name: str, makes: Sequence[Make], devices: Mapping[str, int]) -> SimulatedSystem:
        """The layout and, in closed loop, the number of clients that pilots found best together:
        more segments need more clients."""
        held = sum(devices.values()) * self._times.profile.batch
        numbers: list[int | None] = [None]
        if self._load.clients is not None:
            numbers = [max(self._load.clients // self._copies, 1)]
        elif self._load.rate is None:
            numbers = [math.ceil(held * times) for times in CLIENTS]
        tried = [(make, clients) for make in makes for clients in numbers]
        if len(tried) == 1:
            return self._told(name, tried[0], self._parts)
        if self._pays:
            return self._told(name, self._best(tried, held), self._parts)
        clients = UNTRIED * held if len(numbers) > 1 else numbers[0]
        return replace(self._told(name, (makes[-1], clients), self._parts), untried=True)

    def _pilot(self, held: int) -> LeaveDecisions:
        return self._parts[0].first(max(PILOT, 10 * held))

    def _best(self, tried: list[_Setting], held: int) -> _Setting:
        pilot = [self._pilot(held)]
        found = [self._told("", one, pilot).goodput_per_s for one in tried]
        least = NEAR * max(found)
        near = [one for one, per_s in zip(tried, found, strict=True) if per_s >= least]
        return min(near, key=lambda one: one[1] or 0)

    def _told(self, name: str, what: _Setting, parts: list[LeaveDecisions]) -> SimulatedSystem:
        make, clients = what
        runs = [self._served(make, clients, part, place) for place, part in enumerate(parts)]
        total = None if clients is None else clients * len(parts)
        return summary(name, runs, self._limit_ms, total)

    def _served(self, make: Make, clients: int | None, part: LeaveDecisions, place: int) -> Served:
        arrivals = self._load.arrivals(len(part), place) if clients is None else clients
        run = LaneSimulation(make(), self._times, part, arrivals, self._limit_ms, self._slow)
        return run.run()


def summary(name: str, runs: list[Served], limit_ms: float, clients: int | None) -> SimulatedSystem:
    """What runs side by side made of a closed loop of `clients` together, or of an open loop."""
    waits = np.concatenate([one.answered_ms - one.asked_ms for one in runs])
    rates = [_rates(one, limit_ms, clients is not None) for one in runs]
    return SimulatedSystem(
        name=name,
        goodput_per_s=sum(good for good, _ in rates),
        throughput_per_s=sum(every for _, every in rates),
        within_slo=float(_met(waits, limit_ms).mean()),
        latency_ms_mean=float(waits.mean()),
        latency_ms_p99=float(np.percentile(waits, 99)),
        batch=sum(one.inputs for one in runs) / sum(one.batches for one in runs),
        clients=clients,
        requests=len(waits),
    )


def _met(waits: NDArray[np.float64], limit_ms: float) -> NDArray[np.bool_]:
    return np.asarray(waits <= limit_ms * (1 + 1e-9))


def _rates(run: Served, limit_ms: float, closed: bool) -> tuple[float, float]:
    """Answers within the SLO, and all of them, a second."""
    begin_ms, end_ms = run.asked_ms[0], run.answered_ms.max()
    if closed:
        # both at a request, which in lockstep is an answer: whole periods are counted
        warm_ms = run.asked_ms[np.searchsorted(run.asked_ms, WARM * run.asked_ms[-1])]
        if 0 < warm_ms < run.asked_ms[-1]:
            begin_ms, end_ms = warm_ms, run.asked_ms[-1]
    inside = (run.answered_ms > begin_ms) & (run.answered_ms <= end_ms)
    good = _met(run.answered_ms - run.asked_ms, limit_ms) & inside
    seconds = float(end_ms - begin_ms) / 1e3
    return float(good.sum()) / seconds, float(inside.sum()) / seconds
