"""When bytes came and when requests left, however late the client itself was."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from backends.http.backend import HttpBackend
from backends.http.client import Client
from backends.http.connection import Connection
from backends.http.route import Route
from harness.core.nouns import Commit, Load
from harness.measure.load_loop import run_load
from tests.support.fake_openai import FakeReply, good
from tests.support.http_client import PATIENCE_S, Start, collect, request, submit, taken, until

LATE_S = 0.05


class GoodAndTold:
    """A play that is over once `sent` is set: the whole answer lies at the client."""

    def __init__(self) -> None:
        self.sent = threading.Event()

    def __call__(self, reply: FakeReply) -> None:
        good(reply)
        self.sent.set()


def answered_before(start: Start) -> HttpBackend:
    """Has been asked, and the answer has been there for a while."""
    play = GoodAndTold()
    _, backend = start(play)
    submit(backend, request())
    assert play.sent.wait(PATIENCE_S)
    time.sleep(LATE_S)
    return backend


def test_a_stamp_is_the_arrival_however_late_the_poll(start: Start) -> None:
    sent, polled = threading.Event(), threading.Event()

    def play(reply: FakeReply) -> None:
        reply.tokens([1])
        sent.set()
        polled.wait(PATIENCE_S)
        good(reply)

    _, backend = start(play)
    submit(backend, request(limit=5))
    assert sent.wait(PATIENCE_S)
    sent_ns = time.monotonic_ns()
    time.sleep(LATE_S)
    (first,) = backend.poll()
    polled.set()
    assert first.token_ids == (1,)
    assert first.arrived_ns is not None
    assert first.arrived_ns < sent_ns + LATE_S * 1e9 / 2, "the moment of the read is no arrival"
    assert first.stamp_lag_ns == 0


def test_events_of_one_late_read_say_how_late_their_stamp_may_be(start: Start) -> None:
    sent = threading.Event()

    def play(reply: FakeReply) -> None:
        reply.tokens([1])
        time.sleep(LATE_S)
        reply.tokens([2, 3], "length")
        reply.end()
        sent.set()

    _, backend = start(play)
    submit(backend, request())
    assert sent.wait(PATIENCE_S)
    commits = collect(backend)
    first, second, last = commits
    assert (first.token_ids, second.token_ids) == ((1,), (2, 3))
    assert first.arrived_ns == second.arrived_ns == last.arrived_ns
    assert first.stamp_lag_ns > LATE_S * 1e9, "the first one came that much earlier"


def test_without_the_kernels_stamp_the_time_of_the_read_is_doubted(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = Connection.receive

    def stampless(self: Connection, ahead_ns: int) -> tuple[bytes, int | None] | None:
        found = receive(self, ahead_ns)
        return None if found is None else (found[0], None)

    monkeypatch.setattr(Connection, "receive", stampless)
    backend = answered_before(start)
    read_ns = time.monotonic_ns()
    first = collect(backend)[0]
    assert first.arrived_ns is not None
    assert first.arrived_ns >= read_ns
    assert first.stamp_lag_ns > LATE_S * 1e9 / 2


def test_the_first_commit_says_when_the_request_left(start: Start) -> None:
    play = GoodAndTold()
    _, backend = start(play)
    asked = request()
    backend.prepare([asked], Load("closed", concurrency=1))
    before = time.monotonic_ns()
    backend.submit(asked)
    after = time.monotonic_ns()
    assert play.sent.wait(PATIENCE_S)
    time.sleep(LATE_S)
    commits: list[Commit] = collect(backend)
    assert [commit.sent_ns is not None for commit in commits] == [True, False, False]
    assert commits[0].sent_ns is not None
    assert before <= commits[0].sent_ns <= after


def test_connections_and_bodies_are_ready_before_the_clock_starts(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_on: list[int] = []

    def play(reply: FakeReply) -> None:
        asked_on.append(reply.port)
        good(reply)

    server, backend = start(play)
    requests = [request(str(n)) for n in range(12)]
    backend.prepare(requests, Load("closed", concurrency=8))
    ready = taken(server, backend)
    assert len(ready) == 8
    monkeypatch.setattr(Route, "request", None)
    for asked in requests[:8]:
        backend.submit(asked)
    collect(backend, 8)
    assert sorted(asked_on) == sorted(ready)
    assert taken(server, backend) == ready


def test_a_load_over_http_knows_its_lateness(start: Start) -> None:
    _, backend = start()
    requests = [request(str(n), arrival_s=0.01 * n) for n in range(5)]
    found = run_load(backend, requests, Load("constant", rate=100.0), time_limit_s=PATIENCE_S)
    for generation in found:
        assert generation.finished == "length"
        assert generation.client_lag_ns > 0, "no request leaves at the very moment"
        assert generation.client_lag_ns >= generation.submitted_ns - generation.scheduled_ns
        assert len(generation.stamp_lag_ns) == len(generation.commit_ns)
        assert generation.commit_ns[0] > generation.submitted_ns


def stopped(backend: HttpBackend, play: Callable[[], None]) -> list[Commit]:
    """What is read after a wait during which this thread could not run while `play` did."""
    real = select.select

    def late(*given: Any) -> Any:
        play()
        return real(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backends.http.client.select.select", late)
        backend.wait(PATIENCE_S)
    return collect(backend)


def test_a_wake_up_that_was_late_itself_is_doubted(start: Start) -> None:
    """Two events come while the client waits and gets no processor: they share one stamp."""
    begun, go, sent = threading.Event(), threading.Event(), threading.Event()

    def play(reply: FakeReply) -> None:
        reply.start()
        begun.set()
        go.wait(PATIENCE_S)
        reply.tokens([1])
        time.sleep(LATE_S)
        reply.tokens([2, 3], "length")
        sent.set()
        time.sleep(LATE_S)
        reply.end()

    _, backend = start(play)
    submit(backend, request())
    assert begun.wait(PATIENCE_S)
    client = backend._client
    assert isinstance(client, Client)
    until(lambda: bool(select.select([client._epoll], [], [], 0)[0]))
    backend.poll()

    def starve() -> None:
        go.set()
        sent.wait(PATIENCE_S)

    first, *_ = stopped(backend, starve)
    assert first.stamp_lag_ns > LATE_S * 1e9, "the first one came that much earlier"


def test_a_comment_behind_an_event_makes_its_stamp_doubtful(start: Start) -> None:
    sent = threading.Event()

    def play(reply: FakeReply) -> None:
        reply.tokens([1])
        time.sleep(LATE_S)
        reply.send(b": ping\n\n")
        sent.set()
        time.sleep(LATE_S)
        reply.tokens([2, 3], "length")
        reply.end()

    _, backend = start(play)
    submit(backend, request())
    assert sent.wait(PATIENCE_S)
    first, *_ = collect(backend)
    assert first.token_ids == (1,)
    assert first.stamp_lag_ns > LATE_S * 1e9


def test_a_wall_clock_that_is_set_makes_stamps_worthless(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = answered_before(start)
    wall = time.time_ns
    monkeypatch.setattr("backends.http.stamps.time.time_ns", lambda: wall() + 3_600_000_000_000)
    before = time.monotonic_ns()
    first, *_ = collect(backend)
    assert first.arrived_ns is not None
    assert first.arrived_ns >= before, "the time of the read, for want of a better one"
    assert first.stamp_lag_ns > 0
