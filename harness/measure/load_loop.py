"""The load loop: submit what is due, poll the backend, stamp what it handed out. One thread.

It knows no backend, model or metric. Every time is `time.monotonic_ns`; latencies count from the
scheduled time, so that a system (or a client) that falls behind cannot hide it: see Tene's
"coordinated omission" and MLPerf LoadGen's server scenario.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from harness.core.backend import Backend
from harness.core.decisions import Decisions
from harness.core.errors import nearest
from harness.core.names import SERVER, asked_again
from harness.core.nouns import REPLAYED, Commit, FinishReason, Generation, Load, Request
from harness.measure.machine.scheduling import prompt_wakeups
from harness.measure.protocol import TrialProtocolError, check_label, check_output, note_layers
from harness.measure.timed_window import TimeUp, alarm, garbage_collection_off

QUIET_NS = 20_000_000
"""Longest sleep, whatever is in flight and however far the next arrival is away."""
SUBMITTED_AT_ONCE = 32
FINISHED = get_args(FinishReason)
PROGRESS_NS = 200_000_000


@dataclass(slots=True)
class LoadProgress:
    """How far a load has come."""

    done: int
    """Requests finished, failed ones included."""
    total: int
    tokens: int
    """Output tokens so far."""
    elapsed_s: float = 0.0
    """Since the load began."""
    duration_s: float | None = None
    """How long it lasts, where that was asked for; else until all requests have ended."""


class TrialTimeout(Exception):  # noqa: N818
    """The time limit passed. `generations` holds what was submitted by then, in request order."""

    def __init__(self, limit_s: float, generations: list[Generation]) -> None:
        super().__init__(f"the load was not over within its time limit of {limit_s:g} s")
        self.generations = generations


def run_load(
    backend: Backend,
    requests: Sequence[Request],
    load: Load,
    *,
    time_limit_s: float | None = None,
    duration_s: float | None = None,
    on_progress: Callable[[LoadProgress], None] | None = None,
) -> list[Generation]:
    """Put `requests` on `backend` as `load` says; return one `Generation` each, in request order.

    Open loop: a request is submitted once its `arrival_s` (after the start) has come. Closed loop:
    `load.concurrency` requests are kept in flight; with `duration_s` for so long, the requests
    asked over and over (`harness.core.names.asked_again`), then those in flight are waited for.
    `on_progress` is called five times a second.

    Raises `TrialTimeout` past `time_limit_s`, `TrialProtocolError` when the backend commits for a
    request that it does not have, commits more than was asked for or something else, or goes on
    after a stop token,
    `ValueError` for a load that cannot be run. What the backend raises passes through.
    """
    _check_load(requests, load)
    loop = _Loop(backend, list(requests), load, on_progress, duration_s)
    begin = time.monotonic_ns()
    try:
        with garbage_collection_off(), alarm(time_limit_s):
            backend.prepare(requests, load)
            with prompt_wakeups():
                loop.run(None if time_limit_s is None else begin + round(time_limit_s * 1e9))
    except TimeUp:
        raise TrialTimeout(time_limit_s or 0.0, loop.generations()) from None
    # what a replay says is chance: a stop token in it ends nothing
    if backend.info.provenance != REPLAYED:
        for request in loop.requests:
            if request.id in loop.done:
                check_output(request, loop.done[request.id])
    return loop.generations()


def _check_load(requests: Sequence[Request], load: Load) -> None:
    if not load.is_open and (load.concurrency is None or load.concurrency < 1):
        raise ValueError(f"a closed loop needs a concurrency of at least 1, not {load.concurrency}")
    for request_id, count in Counter(request.id for request in requests).items():
        if count > 1:
            raise ValueError(f"request id '{request_id}' occurs {count} times; ids must be unique")


@dataclass(slots=True)
class _Flight:
    """A request that was submitted and has not ended."""

    generation: Generation
    limit: int
    """The most tokens it may have."""
    wants_label: bool
    could_ns: int
    """When it could have been submitted at the earliest, but for the harness."""


@dataclass(slots=True)
class _Loop:
    backend: Backend
    requests: list[Request]
    load: Load
    on_progress: Callable[[LoadProgress], None] | None
    duration_s: float | None = None
    lasts_ns: int | None = None
    """Closed loop: for so long, with the same requests over and over; None: each once."""
    laps: int = 0
    waiting: deque[tuple[int, Request]] = field(default_factory=deque)
    """Arrival in nanoseconds after the start, and the request; by arrival."""
    in_flight: dict[str, _Flight] = field(default_factory=dict)
    """By request id."""
    done: dict[str, Generation] = field(default_factory=dict)
    is_remote: bool = False
    given: list[Request] = field(default_factory=list)
    start_ns: int = 0
    returned_ns: int = 0
    """When the backend last gave control back."""
    freed_ns: deque[int] = field(default_factory=deque)
    """Closed loop on a server: when the answers ended whose places nobody has taken yet."""
    tokens: int = 0

    def __post_init__(self) -> None:
        self.is_remote = SERVER in self.backend.info.capabilities
        self.given = list(self.requests)
        if self.duration_s is not None and self.given and not self.load.is_open:
            self.lasts_ns = round(self.duration_s * 1e9)

    def run(self, limit_ns: int | None) -> None:
        arrivals = [(round(r.arrival_s * 1e9), r) for r in self.requests]
        self.waiting.extend(sorted(arrivals, key=lambda pair: pair[0]))
        self.start_ns = self.returned_ns = time.monotonic_ns()
        report_ns = self.start_ns
        while self.goes_on():
            more = self.submit_due()
            polled = bool(self.in_flight)
            commits = self.backend.poll() if polled else []
            now = time.monotonic_ns()
            if polled:
                self.returned_ns = now
            if commits:
                self.stamp(commits, now)
            elif not more:
                self.idle(now)
            if limit_ns is not None and now > limit_ns:
                raise TimeUp
            if now >= report_ns and self.on_progress is not None:
                self.on_progress(self.progress(now))
                report_ns = now + PROGRESS_NS

    def progress(self, now: int) -> LoadProgress:
        """How far the load is at `now`."""
        elapsed_s = (now - self.start_ns) * 1e-9
        done, total = len(self.done), len(self.requests)
        return LoadProgress(done, total, self.tokens, elapsed_s, self.duration_s)

    def goes_on(self) -> bool:
        """Whether anything is left to be done. A load of a time has a request waiting for each free
        place until it is over, however few there are and however soon they end, and none from then
        on."""
        if self.lasts_ns is not None:
            if self.is_over(time.monotonic_ns()):
                self.waiting.clear()
                self.lasts_ns = None
            else:
                while len(self.waiting) < (self.load.concurrency or 0) - len(self.in_flight):
                    self.ask_again()
        return bool(self.waiting or self.in_flight)

    def is_over(self, now: int) -> bool:
        """Whether the time of a load that lasts for one has passed."""
        return self.lasts_ns is not None and now - self.start_ns >= self.lasts_ns

    def ask_again(self) -> None:
        """Put all requests among the waiting once more, under ids of their own."""
        self.laps += 1
        names = asked_again([request.id for request in self.given], self.laps)
        more = [replace(r, id=name) for r, name in zip(self.given, names, strict=True)]
        self.requests += more
        self.waiting.extend((0, request) for request in more)

    def submit_due(self) -> bool:
        """Submit the requests whose time has come (open loop) or that find a free place. With a
        server only `SUBMITTED_AT_ONCE`, for what it sends has to be read: True when more are due.
        """
        is_open, places = self.load.is_open, self.load.concurrency or 0
        most = SUBMITTED_AT_ONCE if self.is_remote else len(self.waiting)
        for _ in range(min(most, len(self.waiting))):
            arrival_ns, request = self.waiting[0]
            now = time.monotonic_ns()
            scheduled = self.start_ns + arrival_ns if is_open else now
            full = not is_open and len(self.in_flight) >= places
            if scheduled > now or full or self.is_over(now):
                return False
            self.waiting.popleft()
            could = self.could_ns(scheduled)
            generation = Generation(request.id, scheduled, now, now - could)
            self.in_flight[request.id] = _Flight(
                generation, request.max_new_tokens, request.answer == "label", could
            )
            self.backend.submit(request)
            self.returned_ns = time.monotonic_ns()
        return bool(self.waiting) and self.is_remote

    def could_ns(self, scheduled: int) -> int:
        """When a request that is submitted now could have been, had the harness not been late. An
        engine in this process blocks the loop while it computes: that wait is the engine's. A
        server never does."""
        if not self.is_remote:
            return max(scheduled, self.returned_ns) if self.load.is_open else self.returned_ns
        if self.load.is_open:
            return scheduled
        return self.freed_ns.popleft() if self.freed_ns else scheduled

    def stamp(self, commits: list[Commit], now: int) -> None:
        """Book what one poll handed out; `now` is the time at which it returned."""
        for commit in commits:
            flight = self.in_flight.get(commit.request_id)
            if flight is None:
                raise TrialProtocolError(self.unexpected(commit))
            generation = flight.generation
            at = now if commit.arrived_ns is None else min(commit.arrived_ns, now)
            if flight.wants_label or commit.label is not None:
                check_label(commit, flight.wants_label)
                generation.label = commit.label
            if commit.token_ids or commit.label is not None:
                self.book(generation, commit, at)
                if len(generation.token_ids) > flight.limit:
                    raise TrialProtocolError(
                        f"request '{commit.request_id}': {len(generation.token_ids)} tokens "
                        f"committed, {flight.limit} asked for"
                    )
            if commit.sent_ns is not None:
                generation.client_lag_ns = max(commit.sent_ns - flight.could_ns, 0)
            for name, count in commit.telemetry.items():
                generation.telemetry[name] = generation.telemetry.get(name, 0) + count
            if commit.decisions is not None:
                if generation.decisions is None:
                    generation.decisions = Decisions()
                generation.decisions.extend(commit.decisions)
            if commit.finished is not None:
                if commit.finished not in FINISHED:
                    raise TrialProtocolError(
                        f"request '{commit.request_id}' ended with {commit.finished!r}; "
                        + nearest(str(commit.finished), FINISHED)
                    )
                generation.finished = commit.finished
                generation.error = commit.error
                self.done[commit.request_id] = generation
                del self.in_flight[commit.request_id]
                if self.is_remote and not self.load.is_open:
                    self.freed_ns.append(at)

    def book(self, generation: Generation, commit: Commit, at: int) -> None:
        """Add a commit's tokens, which came at `at`."""
        if generation.commit_ns and generation.commit_ns[-1] >= at:
            # What came in parts at one moment, as a poll hands it out, came all at once.
            generation.commit_tokens[-1] += len(commit.token_ids)
            if commit.stamp_lag_ns:
                generation.stamp_lag_ns[-1] = max(generation.stamp_lag_ns[-1], commit.stamp_lag_ns)
        else:
            generation.commit_ns.append(at)
            generation.commit_tokens.append(len(commit.token_ids))
            if commit.arrived_ns is not None:
                generation.stamp_lag_ns.append(commit.stamp_lag_ns)
        note_layers(generation, commit)
        generation.token_ids.extend(commit.token_ids)
        self.tokens += len(commit.token_ids)

    def idle(self, now: int) -> None:
        """Nothing was ready: leave the core to others, but be back for the next arrival."""
        pause = QUIET_NS
        if self.load.is_open and self.waiting:
            pause = min(pause, self.start_ns + self.waiting[0][0] - now)
        if pause > 0:
            (self.backend.wait if self.in_flight else time.sleep)(pause * 1e-9)

    def unexpected(self, commit: Commit) -> str:
        state = "has already finished" if commit.request_id in self.done else "was never submitted"
        return f"the backend committed for request '{commit.request_id}', which {state}"

    def generations(self) -> list[Generation]:
        """Everything submitted so far, in request order; the unfinished with `finished` None."""
        known = self.done | {key: flight.generation for key, flight in self.in_flight.items()}
        return [known[request.id] for request in self.requests if request.id in known]
