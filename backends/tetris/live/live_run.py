"""One run of a live pipeline: a driver holds the queues and sends whole batches to the actors.

A hop is one call for a batch, whatever its size. Ray promises a call at most once, so that the
driver runs again what a dead actor had: each request is in one call at a time, and no call ends
twice.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stragglers import Slowdown, slowed
from backends.tetris.simulation.events import Served
from backends.tetris.simulation.lanes import Crew, Lane, Layout
from harness.core.errors import UserError

if TYPE_CHECKING:
    from backends.tetris.live.pipeline_driver import LivePipeline

NEVER = float("inf")
LONGEST_WAIT_S = 0.5
MOST_REPLACED = 5
"""Actors that may die one after another in one device's place without answering a batch."""


@dataclass(slots=True)
class LiveFaults:
    """What went wrong in a run: actors that died and were replaced, requests that were run again
    for it, and answers for those who had one already, which are dropped."""

    replaced: int = 0
    run_again: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class DeviceCall:
    """A batch at a device, or without `requests` a new actor that starts in its place. `early`:
    some are answered before its end."""

    lane: Lane
    device: str
    requests: list[int] | None
    expected_ms: float = 0.0
    early: bool = False


class LiveRun:
    """Every request of `decisions` through the stages of `layout`, on the actors of `live`.

    Args:
        arrivals: as in `LaneSimulation`: milliseconds from now, or the number of clients of a
            closed loop.
        slow: devices that are slower than their profile, by name; whoever replaces a dead actor is
            as slow.
    """

    def __init__(
        self,
        live: LivePipeline,
        layout: Layout,
        decisions: LeaveDecisions,
        arrivals: Sequence[float] | NDArray[np.float64] | int,
        slow: Mapping[str, Slowdown] | None = None,
    ) -> None:
        self.live, self.faults = live, LiveFaults()
        self._slow = slow or {}
        self._count, self.next = len(decisions), 0
        self._due = None if isinstance(arrivals, int) else list(arrivals)
        self._clients = arrivals if isinstance(arrivals, int) else 0
        self._asked = [0.0] * self._count
        self._answered = [NEVER] * self._count
        self._left = self._count
        self.calls: dict[Any, DeviceCall] = {}
        self.moving: list[tuple[float, int, Lane, list[int]]] = []
        self._early: list[tuple[float, int, Any, int]] = []
        self._order = itertools.count()
        self._batches = self._inputs = 0
        self._died: Counter[str] = Counter()
        self.deep: list[int] = decisions.depths(layout.cuts).tolist()
        self.take_up(layout)
        self._begin = time.monotonic()

    def take_up(self, layout: Layout) -> None:
        """Go on with these stages. Actors that start have a part in them once they are ready."""
        self.layout = layout
        self._crew_of: dict[str, Crew] = {}
        for lane in layout.lanes:
            lane.link_free_ms = 0.0
        starting = {what.device for what in self.calls.values()}
        for crew in layout.crews:
            for device in crew.devices:
                self._crew_of[device] = crew
                if device in starting:
                    crew.lend(device)

    def now(self) -> float:
        """Milliseconds since the run began."""
        return 1e3 * (time.monotonic() - self._begin)

    def served(self) -> Served:
        """Run it, until every request has its answer. Raises `UserError` for a device that dies
        again and again."""
        if self._due is None:
            self._ask(self._clients)
        while self._left:
            self._arrive()
            self.between()
            for lane in reversed(self.layout.lanes):
                while lane.idle and self.may_start(lane):
                    self._start(lane)
            self._flush_idle()
            self._wait(self.coming())
        while self.calls:  # devices that are being replaced
            self._wait([])
        asked, answered = np.array(self._asked), np.array(self._answered)
        return Served(asked, answered, self._batches, self._inputs)

    def between(self) -> None:
        """For a run that changes its stages."""

    def may_start(self, lane: Lane) -> bool:
        """Whether a lane's queue gives a batch now."""
        return lane.queue.ready(self.now())

    def ran(self, device: str, took_ms: float, expected_ms: float) -> None:
        """For a run that watches its devices: a batch that the profile gives `expected_ms`."""

    def coming(self) -> list[float]:
        """Milliseconds at which something is to be done, though no call has ended."""
        soon = [lane.queue.flush_ms for lane in self.layout.lanes if lane.idle and len(lane.queue)]
        soon += [self.moving[0][0]] if self.moving else []
        soon += [self._early[0][0]] if self._early else []
        return soon + ([self._due[self.next]] if self._due and self.next < self._count else [])

    def _ask(self, count: int) -> None:
        asked = range(self.next, min(self.next + count, self._count))
        self.next = asked.stop
        for one in asked:
            self._asked[one] = self.now() if self._due is None else self._due[one]
        if asked:
            self.join(self.layout.entrance, asked)

    def join(self, lane: Lane, requests: Sequence[int]) -> None:
        """Requests come into a lane's queue."""
        deadlines = [self._asked[one] + self.live.limit_ms for one in requests]
        lane.queue.push(requests, deadlines, self.now())

    def _arrive(self) -> None:
        now_ms = self.now()
        while self.moving and self.moving[0][0] <= now_ms:
            _, _, lane, requests = heapq.heappop(self.moving)
            self.join(lane, requests)
        while self._early and self._early[0][0] <= now_ms:
            _, _, call, one = heapq.heappop(self._early)
            if call in self.calls:
                self._answer([one])
        while self._due and self.next < self._count and self._due[self.next] <= now_ms:
            self._ask(1)

    def _start(self, lane: Lane) -> None:
        crew = lane.next_crew()
        now_ms = self.now()
        requests = lane.queue.take(now_ms)
        device = crew.lend()
        self._batches += 1
        self._inputs += len(requests)
        depths = [self.deep[one] for one in requests]
        expected_ms, early = lane.work(crew.kind, requests, depths)
        slower = slowed(self._slow, device, now_ms)
        call = self.live.send(device, requests, depths, lane.end, expected_ms * slower)
        self.calls[call] = DeviceCall(lane, device, requests, expected_ms, early is not None)
        for one, after_ms in zip(requests, early or (), strict=False):
            moment = (now_ms + slower * after_ms, next(self._order), call, one)
            heapq.heappush(self._early, moment)

    def _flush_idle(self) -> None:
        """Nobody can join those who wait: all of them run."""
        coming = self._due is not None and self.next < self._count
        if self.calls or self.moving or coming:
            return
        waiting = [lane for lane in self.layout.lanes if len(lane.queue)]
        assert waiting  # a request was lost
        for lane in waiting:
            if lane.idle:
                self._start(lane)

    def _wait(self, coming: list[float]) -> None:
        """Until an answer, or the time of whatever comes next."""
        ahead_ms = min(coming, default=NEVER) - self.now()
        wait_s = min(max(ahead_ms, 0.0) / 1e3, LONGEST_WAIT_S)
        if not self.calls:
            time.sleep(wait_s)
            return
        done, _ = self.live.ray.wait(list(self.calls), num_returns=1, timeout=wait_s)
        for call in done:
            self._ended(call)

    def _ended(self, call: Any) -> None:
        what = self.calls.pop(call)
        try:
            answer = self.live.ray.get(call)
        except self.live.ray.exceptions.RayActorError:
            self._replace(what)
            return
        if what.device in self._crew_of:
            self._crew_of[what.device].give_back(what.device)
        if what.requests is None:
            self.live.pids[what.device] = answer
            return
        del self._died[what.device]
        left, going, took_ms = answer
        self.ran(what.device, took_ms, what.expected_ms)
        if what.early:
            left = [one for one in left if self._answered[one] == NEVER]
        self.take(what.lane, left, going)

    def _replace(self, what: DeviceCall) -> None:
        self._died[what.device] += 1
        if self._died[what.device] > MOST_REPLACED:
            told = f"{MOST_REPLACED} new ones in its place without answering a batch"
            raise UserError(f"--live: device {what.device} died, and so did {told}")
        self.faults.replaced += 1
        ready = self.live.start_anew(what.device)
        self.calls[ready] = DeviceCall(what.lane, what.device, None)
        if what.requests is not None:
            again = [one for one in what.requests if self._answered[one] == NEVER]
            self.faults.run_again += len(again)
            self.join(what.lane, again)

    def take(self, lane: Lane, left: list[int], going: list[int]) -> None:
        """A batch that a lane's device ran: who has an answer, and who goes on."""
        now_ms = self.now()
        lane.left += len(left)
        lane.passed += len(going)
        new = [one for one in left if self._answered[one] == NEVER]
        self.faults.dropped += len(left) - len(new)
        if going:
            assert lane.after is not None  # nobody goes on behind the last stage
            begin_ms = max(now_ms, lane.link_free_ms)
            lane.link_free_ms = begin_ms + self.live.times.transfer_ms(lane.end, len(going))
            move = (lane.link_free_ms, next(self._order), lane.after, going)
            heapq.heappush(self.moving, move)
        self._answer(new)

    def _answer(self, requests: list[int]) -> None:
        now_ms = self.now()
        for one in requests:
            self._answered[one] = now_ms
        self._left -= len(requests)
        if self._due is None:
            self._ask(len(requests))
