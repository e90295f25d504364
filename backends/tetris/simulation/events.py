"""The discrete-event simulation: requests arrive, wait, run in batches and leave."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.pipeline.stragglers import Slowdown, slowed
from backends.tetris.simulation.lanes import Crew, Lane, Layout

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Served:
    """Milliseconds at which N requests were asked and answered, and the batches that ran: how many,
    and how many requests they had together."""

    asked_ms: NDArray[np.float64]
    answered_ms: NDArray[np.float64]
    batches: int
    inputs: int


class LaneSimulation:
    """Runs every request of `decisions` through a layout.

    Args:
        arrivals: (N,) ascending milliseconds (open loop), or the number of clients that each ask
            again as soon as they have their answer (closed loop).
        limit_ms: latency that queues are flushed for.
        slow: devices that are slower than their profile, by name.
    """

    def __init__(
        self,
        layout: Layout,
        times: StageTimes,
        decisions: LeaveDecisions,
        arrivals: Sequence[float] | NDArray[np.float64] | int,
        limit_ms: float,
        slow: Mapping[str, Slowdown] | None = None,
    ) -> None:
        self.layout, self.now_ms = layout, 0.0
        self.decisions, self.times = decisions, times
        self._limit_ms, self._slow = limit_ms, slow or {}
        self._clients = arrivals if isinstance(arrivals, int) else None
        self._count, self._next = len(decisions), 0
        self.depth: list[int] = decisions.depths(layout.cuts).tolist()
        self._own_depth: dict[str, list[int]] = {
            kind: decisions.depths(cuts).tolist()
            for kind, cuts in layout.own_cuts.items()
            if len(layout.own_cuts) > 1
        }
        self._asked = [0.0] * self._count if isinstance(arrivals, int) else list(arrivals)
        self._answered = [NEVER] * self._count
        self._events: list[tuple[float, int, Any, Any]] = []
        self._order = itertools.count()
        self._coming: tuple[float, int] | None = None
        self.inside = 0
        self.batches = self.inputs = 0

    def run(self) -> Served:
        """Until every request has its answer."""
        self._begin()
        events = self._events
        while self.inside or self._coming or self._flush_idle():
            if self._coming and (not events or self._coming < events[0]):
                self._arrive(self._coming[0])
                continue
            self.now_ms, _, handle, what = heapq.heappop(events)
            handle(what)
        asked, answered = np.array(self._asked), np.array(self._answered)
        assert np.isfinite(answered).all()  # a request was lost
        return Served(asked, answered, self.batches, self.inputs)

    @property
    def asked(self) -> int:
        """How many requests arrived, in order."""
        return self._next

    def _begin(self) -> None:
        if self._clients is None:
            self._expect()
        else:
            self._ask(min(self._clients, self._count))

    def at(self, when_ms: float, handle: Any, what: Any = None) -> None:
        """Call `handle(what)` at a time."""
        heapq.heappush(self._events, (when_ms, next(self._order), handle, what))

    def _expect(self) -> None:
        """The next arrival, which has its place among events of one time."""
        coming = self._next < self._count
        self._coming = (self._asked[self._next], next(self._order)) if coming else None

    def _arrive(self, now_ms: float) -> None:
        self.now_ms, arrived = now_ms, self._next
        self._next += 1
        self.join(self.layout.entrance, (arrived,))
        self._expect()

    def _ask(self, count: int) -> None:
        """The next requests arrive now."""
        count = min(count, self._count - self._next)
        if not count:
            return
        asked = range(self._next, self._next + count)
        self._next += count
        for request in asked:
            self._asked[request] = self.now_ms
        self.join(self.layout.entrance, asked)

    def join(self, lane: Lane, requests: Sequence[int]) -> None:
        """Requests come into a lane's queue."""
        asked, limit_ms = self._asked, self._limit_ms
        deadlines = [asked[one] + limit_ms for one in requests]
        lane.queue.push(requests, deadlines, self.now_ms)
        self.serve(lane)

    def serve(self, lane: Lane) -> None:
        """Start what is ready in a lane on the devices that are free for it."""
        while lane.idle and self.may_start(lane):
            self._start(lane.next_crew(), lane)
        if self.now_ms < lane.queue.flush_ms < lane.timer_ms:
            self._remind(lane)

    def may_start(self, lane: Lane) -> bool:
        """Whether a lane's queue gives a batch now."""
        return lane.queue.ready(self.now_ms)

    def _remind(self, lane: Lane) -> None:
        lane.timer_ms = lane.queue.flush_ms
        self.at(lane.timer_ms, self._flush, lane)

    def _flush(self, lane: Lane) -> None:
        lane.timer_ms = NEVER
        self.serve(lane)

    def _start(self, crew: Crew, lane: Lane) -> None:
        requests = lane.queue.take(self.now_ms)
        own = self._own_depth.get(crew.kind)
        if own is not None and lane.queue is self.layout.entrance.queue:
            lane = crew.lane_of(lane.queue)
            for one in requests:
                self.depth[one] = own[one]
        device = crew.lend()
        depths = [self.depth[one] for one in requests]
        took_ms, answers = lane.work(crew.kind, requests, depths)
        if self._slow:
            took_ms *= slowed(self._slow, device, self.now_ms)
        if answers is not None:
            self._answer_in(device, requests, answers)
        self.batches += 1
        self.inputs += len(requests)
        self.inside += 1
        batch = (crew, lane, device, requests, answers)
        heapq.heappush(
            self._events, (self.now_ms + took_ms, next(self._order), self._finish, batch)
        )
        self.started(device, took_ms, lane, crew, requests)

    def _answer_in(self, device: str, requests: list[int], answers: list[float]) -> None:
        """Answers of a batch that goes on without those who have theirs."""
        slower = slowed(self._slow, device, self.now_ms)
        times = [self.now_ms + slower * after_ms for after_ms in answers]
        for one, when_ms in zip(requests, times, strict=True):
            self._answered[one] = when_ms
        if self._clients is not None:
            for when_ms, count in Counter(times).items():
                self.inside += 1
                self.at(when_ms, self._ask_again, count)

    def _ask_again(self, count: int) -> None:
        self.inside -= 1
        self._ask(count)

    def started(
        self, device: str, took_ms: float, lane: Lane, crew: Crew, requests: list[int]
    ) -> None:
        """For a run that watches its devices."""

    def _finish(self, what: tuple[Crew, Lane, str, list[int], list[float] | None]) -> None:
        crew, lane, device, requests, answers = what
        self.inside -= 1
        crew.give_back(device)
        depth, end, going = self.depth, lane.end, list[int]()
        for one in requests:
            if depth[one] > end:
                going.append(one)
            elif answers is None:
                self._answered[one] = self.now_ms
        lane.left += len(requests) - len(going)
        lane.passed += len(going)
        if going:
            self._pass_on(lane, crew, going)
        if self._clients is not None and answers is None:
            self._ask(len(requests) - len(going))
        for served in crew.lanes:
            if not served.queue.waiting:
                continue
            while crew.free and self.may_start(served):
                self._start(crew, served)
            if self.now_ms < served.queue.flush_ms < served.timer_ms:
                self._remind(served)

    def _pass_on(self, lane: Lane, crew: Crew, going: list[int]) -> None:
        after = lane.after
        if after is None:  # the entrance of lanes that each device has for itself
            after = crew.lanes[-2]
        if not lane.linked:
            self.join(after, going)
            return
        free = max(self.now_ms, lane.link_free_ms)
        lane.link_free_ms = free + self.times.transfer_ms(lane.end, len(going))
        self.inside += 1
        self.at(lane.link_free_ms, self._moved, (after, going))

    def _moved(self, what: tuple[Lane, list[int]]) -> None:
        self.inside -= 1
        self.join(*what)

    def _flush_idle(self) -> bool:
        """Nothing is under way, so nobody can join those who wait: all of them run, the deepest
        first where a device serves several lanes."""
        for lane in reversed(self.layout.lanes):
            if len(lane.queue) and lane.idle:
                self._start(lane.next_crew(), lane)
        return self.inside > 0
