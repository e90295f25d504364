"""The live pipeline: one driver holds the queues and sends whole batches to actors.

A hop is one call for a batch, whatever its size. Ray promises a call at most once, so that the
driver runs again what a dead actor had: each request is in one call at a time, and no call ends
twice.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.tetris.live.devices import device_actor
from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import StagePlan
from backends.tetris.simulation.events import Served
from backends.tetris.simulation.lanes import Crew, Lane
from backends.tetris.simulation.layouts import pipeline
from harness.core.errors import UserError

NEVER = float("inf")
LONGEST_WAIT_S = 0.5
READY_S = 120.0
MOST_REPLACED = 5
"""Actors that may die one after another in one device's place without answering a batch."""


@dataclass(slots=True)
class LiveFaults:
    """What went wrong in a run: actors that died and were replaced, and requests that were run
    again for it."""

    replaced: int = 0
    run_again: int = 0


@dataclass(frozen=True, slots=True)
class _Call:
    crew: Crew
    lane: Lane
    device: str
    requests: list[int] | None  # None: a new actor starts


class LivePipeline:
    """The stages of a plan, an actor for each device. `actors` has them by device name; `close`
    ends them. Raises `UserError` when they do not start in two minutes.

    Args:
        ray: as `start_ray` gives it.
        limit_ms: latency that queues are flushed for.
    """

    def __init__(self, ray: Any, times: StageTimes, plan: StagePlan, limit_ms: float) -> None:
        self.ray, self.times, self.limit_ms = ray, times, limit_ms
        self._class = device_actor(ray)
        self.layout = pipeline(times, plan)
        devices = [name for crew in self.layout.crews for name in crew.devices]
        self.actors: dict[str, Any] = {name: self._class.remote() for name in devices}
        try:
            ray.get([actor.ready.remote() for actor in self.actors.values()], timeout=READY_S)
        except (ray.exceptions.GetTimeoutError, ray.exceptions.RayActorError) as error:
            self.close()
            late = isinstance(error, ray.exceptions.GetTimeoutError)
            why = f"were not ready in {READY_S:g} s" if late else "did not start"
            raise UserError(f"--live: the {len(devices)} emulated devices {why}") from None

    def close(self) -> None:
        """End the actors."""
        for actor in self.actors.values():
            self.ray.kill(actor)

    def run(
        self, decisions: LeaveDecisions, arrivals: Sequence[float] | NDArray[np.float64] | int
    ) -> tuple[Served, LiveFaults]:
        """Every request answered once. `arrivals` as in `LaneSimulation`: milliseconds from now, or
        the number of clients of a closed loop. Raises `UserError` for a device that dies again and
        again."""
        run = _LiveRun(self, decisions, arrivals)
        return run.served(), run.faults

    def call(self, lane: Lane, crew: Crew, device: str, batch: Sequence[int], deep: Any) -> Any:
        """Send a batch to a device; the reference of its answer."""
        requests = list(batch)
        depths = [deep[one] for one in requests]
        took_ms, _ = lane.work(crew.kind, requests, depths)
        return self.actors[device].run.remote(requests, depths, lane.end, took_ms)

    def start_anew(self, device: str) -> Any:
        """A new actor in place of a dead one; the reference of its being ready. What only could not
        be reached is ended, so that nothing runs twice."""
        self.ray.kill(self.actors[device])
        self.actors[device] = self._class.remote()
        return self.actors[device].ready.remote()


class _LiveRun:
    def __init__(
        self,
        live: LivePipeline,
        decisions: LeaveDecisions,
        arrivals: Sequence[float] | NDArray[np.float64] | int,
    ) -> None:
        self._live, self.faults = live, LiveFaults()
        self._lanes = live.layout.lanes
        self._count, self._next = len(decisions), 0
        self._deep: list[int] = decisions.depths(live.layout.cuts).tolist()
        self._due = None if isinstance(arrivals, int) else list(arrivals)
        self._clients = arrivals if isinstance(arrivals, int) else 0
        self._asked = [0.0] * self._count
        self._answered = [NEVER] * self._count
        self._left = self._count
        self._calls: dict[Any, _Call] = {}
        self._moving: list[tuple[float, int, Lane, list[int]]] = []
        self._order = itertools.count()
        self._batches = self._inputs = 0
        self._died: Counter[str] = Counter()
        for lane in self._lanes:
            lane.link_free_ms = 0.0
        self._begin = time.monotonic()

    def _now(self) -> float:
        return 1e3 * (time.monotonic() - self._begin)

    def served(self) -> Served:
        if self._due is None:
            self._ask(self._clients)
        while self._left:
            self._arrive()
            for lane in reversed(self._lanes):
                while lane.idle and lane.queue.ready(self._now()):
                    self._start(lane)
            self._flush_idle()
            self._wait()
        while self._calls:  # devices that are being replaced
            self._wait()
        asked, answered = np.array(self._asked), np.array(self._answered)
        return Served(asked, answered, self._batches, self._inputs)

    def _ask(self, count: int) -> None:
        asked = range(self._next, min(self._next + count, self._count))
        self._next = asked.stop
        for one in asked:
            self._asked[one] = self._now() if self._due is None else self._due[one]
        if asked:
            self._join(self._lanes[0], asked)

    def _join(self, lane: Lane, requests: Sequence[int]) -> None:
        deadlines = [self._asked[one] + self._live.limit_ms for one in requests]
        lane.queue.push(requests, deadlines, self._now())

    def _arrive(self) -> None:
        now_ms = self._now()
        while self._moving and self._moving[0][0] <= now_ms:
            _, _, lane, requests = heapq.heappop(self._moving)
            self._join(lane, requests)
        while self._due and self._next < self._count and self._due[self._next] <= now_ms:
            self._ask(1)

    def _start(self, lane: Lane) -> None:
        crew = next(iter(lane.idle))
        requests = lane.queue.take(self._now())
        device = crew.lend()
        self._batches += 1
        self._inputs += len(requests)
        call = self._live.call(lane, crew, device, requests, self._deep)
        self._calls[call] = _Call(crew, lane, device, requests)

    def _flush_idle(self) -> None:
        """Nobody can join those who wait: all of them run."""
        coming = self._due is not None and self._next < self._count
        if self._calls or self._moving or coming:
            return
        for lane in self._lanes:
            if len(lane.queue) and lane.idle:
                self._start(lane)

    def _wait(self) -> None:
        """Until an answer, or the time of whatever comes next."""
        now_ms = self._now()
        soon = [lane.queue.flush_ms for lane in self._lanes if lane.idle and len(lane.queue)]
        soon += [self._moving[0][0]] if self._moving else []
        soon += [self._due[self._next]] if self._due and self._next < self._count else []
        wait_s = min(max(min(soon, default=NEVER) - now_ms, 0.0) / 1e3, LONGEST_WAIT_S)
        if not self._calls:
            time.sleep(wait_s)
            return
        done, _ = self._live.ray.wait(list(self._calls), num_returns=1, timeout=wait_s)
        for call in done:
            self._ended(call)

    def _ended(self, call: Any) -> None:
        what = self._calls.pop(call)
        try:
            answer = self._live.ray.get(call)
        except self._live.ray.exceptions.RayActorError:
            self._replace(what)
            return
        what.crew.give_back(what.device)
        if what.requests is not None:
            del self._died[what.device]
            self._take(what, *answer)

    def _replace(self, what: _Call) -> None:
        self._died[what.device] += 1
        if self._died[what.device] > MOST_REPLACED:
            told = f"{MOST_REPLACED} new ones in its place without answering a batch"
            raise UserError(f"--live: device {what.device} died, and so did {told}")
        self.faults.replaced += 1
        ready = self._live.start_anew(what.device)
        self._calls[ready] = _Call(what.crew, what.lane, what.device, None)
        if what.requests is not None:
            self.faults.run_again += len(what.requests)
            self._join(what.lane, what.requests)

    def _take(self, what: _Call, left: list[int], going: list[int]) -> None:
        now_ms, lane = self._now(), what.lane
        for one in left:
            self._answered[one] = now_ms
            self._left -= 1
        if going:
            assert lane.after is not None  # nobody goes on behind the last stage
            begin_ms = max(now_ms, lane.link_free_ms)
            lane.link_free_ms = begin_ms + self._live.times.transfer_ms(len(going))
            move = (lane.link_free_ms, next(self._order), lane.after, going)
            heapq.heappush(self._moving, move)
        if self._due is None:
            self._ask(len(left))
