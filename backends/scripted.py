"""A backend that hands out tokens on a schedule known in advance: the harness's own yardstick.

The schedule of a request is fixed when it is submitted, so what a perfect clock would have seen can
be computed without running anything (`harness.cli.selftest`). It can also fail in the ways an
engine can, for the tests of the sweep. It needs no model and runs none: its provenance is
"simulation".
"""

from __future__ import annotations

import heapq
import itertools
import os
import signal
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from harness.core.backend import Backend, Option
from harness.core.errors import UserError
from harness.core.nouns import BackendInfo, Commit, FinishReason, Model, Request

VERSION = "1"
FAULTS = ("start", "raise", "out_of_memory", "kill", "hang")
LARGEST_VOCABULARY = 2**31 - 1
"""Token ids are stored in 32 bits."""
STALL_KEYS = {"at_s", "for_s"}


@dataclass(slots=True)
class _ScriptedRequest:
    """A request in flight: what is still to come, one step per commit."""

    request_id: str
    steps: Iterator[tuple[int, Commit]]
    """Work time (nanoseconds of undisturbed time since the start of the load) and the commit."""


class ScriptedBackend(Backend):
    """Emits made-up tokens on a schedule known in advance: the harness's own yardstick."""

    OPTIONS: ClassVar[dict[str, Option]] = {
        "ttft_s": Option(float, 0.02, "seconds from start of service to first commit", minimum=0),
        "itl_s": Option(float, 0.005, "seconds between commits", minimum=0),
        "itl_schedule_s": Option(
            list, None, "gaps between commits, repeated; replaces itl_s", minimum=0
        ),
        "tokens": Option(int, None, "answer length; default: what the request asks for", minimum=1),
        "tokens_per_commit": Option(int, 1, "tokens in each commit", minimum=1),
        "capacity": Option(
            int, None, "requests served at once, the others queue in order", minimum=1
        ),
        "stalls": Option(
            list, [], "[{at_s, for_s}]: everything stands still, from the first submit"
        ),
        "drafted": Option(
            int, 0, "drafted tokens reported with each commit after the first", minimum=0
        ),
        "accepted": Option(
            list, [], "accepted per commit, repeated; each adds a bonus token", minimum=0
        ),
        "fail_ids": Option(list, [], "ids of requests that fail after their first commit"),
        "fail_fraction": Option(float, 0.0, "share of requests that fail likewise", minimum=0),
        "fault": Option(str, None, "what the engine does to its process", choices=FAULTS),
        "fault_after": Option(int, 0, "commits of a load before the fault", minimum=0),
        "seed": Option(int, 0, "decides the token ids"),
        "vocabulary": Option(int, 1000, "token ids are below this", minimum=16),
        "diverge_at": Option(int, None, "position from which the token ids differ", minimum=0),
        "diverge_fraction": Option(float, 1.0, "share of requests that diverge", minimum=0),
        "zero_work": Option(bool, False, "no schedule: each poll has a commit of every request"),
    }
    needs_model = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        """The options that matter; the others are at their defaults."""
        script = {name: option.default for name, option in self.OPTIONS.items()} | dict(options)
        self._script = script
        self._tokens_per_commit = script["tokens_per_commit"]
        gaps = script["itl_schedule_s"] or [script["itl_s"]]
        self._gaps_ns = [round(gap * 1e9) for gap in gaps]
        self._stalls_ns = sorted(
            (round(s["at_s"] * 1e9), round(s["for_s"] * 1e9)) for s in script["stalls"]
        )
        self.info = BackendInfo("scripted", VERSION, "simulation", dict(options), lossless=True)
        self._start_ns: int | None = None
        self._handed_out = 0
        self._order = itertools.count()
        self._queue: list[tuple[int, int, Commit, _ScriptedRequest]] = []
        self._live: dict[str, _ScriptedRequest] = {}
        self._free_ns: list[int] = []
        self.reset()

    @classmethod
    def check(cls, model_dir: Path | None, options: Mapping[str, Any]) -> None:
        """Raise `UserError` for what `OPTIONS` cannot express."""
        where = "backend 'scripted': option"
        for name in ("fail_fraction", "diverge_fraction"):
            if not 0 <= options[name] <= 1:
                raise UserError(f"{where} '{name}': expected 0 to 1, got {options[name]!r}")
        drafted = options["drafted"]
        for count in options["accepted"]:
            if not isinstance(count, int) or count > drafted:
                raise UserError(
                    f"{where} 'accepted': expected at most drafted={drafted}: {count!r}"
                )
        if options["vocabulary"] > LARGEST_VOCABULARY:
            raise UserError(f"{where} 'vocabulary': expected at most {LARGEST_VOCABULARY}")
        if options["tokens_per_commit"] > 1 and options["accepted"]:
            raise UserError(f"{where} 'accepted' and 'tokens_per_commit' exclude each other")
        _check_stalls(f"{where} 'stalls'", options["stalls"])

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        """The backend; there is nothing to load. `fault: start` makes it fail here."""
        if options["fault"] == "start":
            raise RuntimeError("scripted to fail at the start")
        return cls(options)

    def submit(self, request: Request) -> None:
        """Fix the request's whole schedule, from now on or from when a place is free."""
        now = time.monotonic_ns()
        start_ns = self._start_ns = now if self._start_ns is None else self._start_ns
        steps = list(self._commits(request))
        if self._script["zero_work"]:
            self._live[request.id] = _ScriptedRequest(
                request.id, iter([(0, commit) for commit in steps])
            )
            return
        arrived = _unwarp(now - start_ns, self._stalls_ns)
        begin = max(arrived, heapq.heappop(self._free_ns)) if self._free_ns else arrived
        gaps = itertools.cycle(self._gaps_ns)
        first = begin + round(self._script["ttft_s"] * 1e9)
        times = itertools.accumulate((next(gaps) for _ in steps[1:]), initial=first)
        schedule = list(zip(times, steps, strict=True))
        if self._script["capacity"] is not None:
            heapq.heappush(self._free_ns, schedule[-1][0])
        self._push(_ScriptedRequest(request.id, iter(schedule)))

    def poll(self) -> list[Commit]:
        """Every commit that is due by now."""
        if self._script["fault"] is not None and self._handed_out >= self._script["fault_after"]:
            _break_down(self._script["fault"])
        commits = self._poll_all() if self._script["zero_work"] else self._poll_due()
        self._handed_out += len(commits)
        return commits

    def reset(self) -> None:
        """Forget everything; the next submit is time zero for `stalls` and `fault_after`."""
        self._start_ns = None
        self._handed_out = 0
        self._queue.clear()
        self._live.clear()
        self._free_ns = [0] * (self._script["capacity"] or 0)

    def close(self) -> None:
        """Nothing to free."""
        self.reset()

    def _poll_due(self) -> list[Commit]:
        commits: list[Commit] = []
        now = time.monotonic_ns()
        while self._queue and self._queue[0][0] <= now:
            _, _, commit, live = heapq.heappop(self._queue)
            commits.append(commit)
            self._push(live)
        return commits

    def _poll_all(self) -> list[Commit]:
        commits = [next(live.steps)[1] for live in self._live.values()]
        for commit in commits:
            if commit.finished is not None:
                del self._live[commit.request_id]
        return commits

    def _push(self, live: _ScriptedRequest) -> None:
        step = next(live.steps, None)
        if step is not None:
            due = (self._start_ns or 0) + _warp(step[0], self._stalls_ns)
            heapq.heappush(self._queue, (due, next(self._order), step[1], live))

    def _commits(self, request: Request) -> Iterator[Commit]:
        """The request's commits in order; a failing request has one, then the error."""
        ids = self._token_ids(request)
        ends: FinishReason = "length" if len(ids) == request.max_new_tokens else "stop"
        fails = self._fails(request.id)
        position = 0
        for index in itertools.count():
            size, telemetry = self._step(index)
            size = min(size, len(ids) - position)
            if fails and index == 1:
                yield Commit(request.id, (), "error", {}, "scripted failure")
                return
            position += size
            last = position == len(ids) and not (fails and index == 0)
            yield Commit(
                request.id, ids[position - size : position], ends if last else None, telemetry
            )
            if last:
                return

    def _step(self, index: int) -> tuple[int, dict[str, float]]:
        """Tokens in a request's commit number `index`, and its telemetry."""
        accepted = self._script["accepted"]
        if not accepted or index == 0:
            return self._tokens_per_commit, {}
        count = accepted[(index - 1) % len(accepted)]
        return count + 1, {"steps": 1, "drafted": self._script["drafted"], "accepted": count}

    def _token_ids(self, request: Request) -> tuple[int, ...]:
        """Made up, but the same for the same seed, request id and position, whenever asked."""
        script = self._script
        length = min(script["tokens"] or request.max_new_tokens, request.max_new_tokens)
        diverge_at = script["diverge_at"]
        if diverge_at is None or _share(request.id, "diverge") >= script["diverge_fraction"]:
            diverge_at = length
        seed = zlib.crc32(f"{script['seed']}/{request.id}".encode())
        stops = set(request.stop_ids)
        ids = []
        for position in range(length):
            mixed = (seed + position * 2654435761) & 0xFFFFFFFF
            token = ((mixed ^ mixed >> 15) + (position >= diverge_at)) % script["vocabulary"]
            while token in stops:
                token = (token + 1) % script["vocabulary"]
            ids.append(token)
        return tuple(ids)

    def _fails(self, request_id: str) -> bool:
        listed = request_id in self._script["fail_ids"]
        return listed or _share(request_id, "fail") < self._script["fail_fraction"]


def _share(request_id: str, purpose: str) -> float:
    """A number from 0 to 1 that belongs to this request."""
    return zlib.crc32(f"{purpose}/{request_id}".encode()) / 2**32


def _warp(work_ns: int, stalls: list[tuple[int, int]]) -> int:
    """Wall time at which this much undisturbed time has passed."""
    wall = work_ns
    for at, duration in stalls:
        if wall > at:
            wall += duration
    return wall


def _unwarp(wall_ns: int, stalls: list[tuple[int, int]]) -> int:
    """Undisturbed time that has passed at this wall time: the inverse of `_warp`."""
    return wall_ns - sum(min(max(wall_ns - at, 0), duration) for at, duration in stalls)


def _check_stalls(where: str, stalls: list[Any]) -> None:
    end = 0.0
    for stall in stalls:
        if not isinstance(stall, Mapping) or set(stall) != STALL_KEYS:
            raise UserError(f"{where}: expected {{at_s: SECONDS, for_s: SECONDS}}, got {stall!r}")
        if not all(isinstance(v, int | float) and v >= 0 for v in stall.values()):
            raise UserError(f"{where}: expected seconds of at least 0, got {stall!r}")
        if stall["at_s"] < end:
            raise UserError(f"{where}: expected ascending stalls that do not overlap at {stall!r}")
        end = stall["at_s"] + stall["for_s"]


def _break_down(fault: str) -> None:
    if fault == "out_of_memory":
        raise MemoryError("scripted to run out of memory")
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while fault == "hang":
        time.sleep(3600)
    raise RuntimeError("scripted to fail")
