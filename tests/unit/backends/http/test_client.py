"""Connections: kept, renewed, closed on us, in other processes."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
import time

import pytest

from backends.http import client as http_client
from backends.http import pool
from backends.http.backend import clients_for, most_at_once
from backends.http.probe.options import check_base_url
from backends.http.route import Route
from backends.http.workers import ClientProcesses
from harness.core.errors import UserError
from harness.core.nouns import Load, Request
from harness.measure.load_loop import run_load
from tests.support.fake_openai import FakeReply, good
from tests.support.http_client import PATIENCE_S, Start, answer, collect, failure, request, taken


def test_a_connection_that_may_be_closed_by_now_is_not_used(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, backend = start()
    answer(backend)
    before = server.connections
    monkeypatch.setattr(pool, "KEEP_ALIVE_NS", 0)
    answer(backend)
    assert server.connections == before + 1


@pytest.mark.parametrize("pause_s", [0.0, 0.05])
def test_connections_closed_without_a_word_after_an_answer_cost_nothing(
    start: Start, pause_s: float
) -> None:
    """Whether the client sees it before it sends again or after."""

    def play(reply: FakeReply) -> None:
        good(reply)
        time.sleep(pause_s / 10)
        reply.drop()

    server, backend = start(play)
    requests = [request(str(n)) for n in range(40)]
    found = run_load(backend, requests, Load("closed", concurrency=4), time_limit_s=PATIENCE_S)
    assert [g.error for g in found] == [None] * 40
    time.sleep(pause_s)
    server.play = good
    assert answer(backend)[-1].finished == "length"


def test_a_request_is_sent_a_second_time_only_where_nothing_was_answered(start: Start) -> None:
    seen: list[str] = []

    def play(reply: FakeReply) -> None:
        seen.append("asked")
        if len(seen) == 1:
            good(reply)
            return
        reply.start()
        reply.drop()

    server, backend = start(play)
    answer(backend)
    assert "closed in the middle" in failure(backend)
    assert len(seen) == 2

    def drop(reply: FakeReply) -> None:
        seen.append("asked")
        reply.drop()

    server.play = drop
    assert "closed the connection without an answer" in failure(backend)
    assert len(seen) == 3, "a new connection that is closed is the server's answer"


def test_an_encoded_answer_is_named_not_misread(start: Start) -> None:
    def play(reply: FakeReply) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
        reply._handler.wfile.write(head + b"Content-Length: 2\r\n\r\n\x1f\x8b")

    server, backend = start(play)
    assert "the answer is encoded (gzip), unasked" in failure(backend)
    with pytest.raises(UserError, match=r"the answer is encoded \(gzip\), unasked"):
        start(play, play)
    server.play = good
    answer(backend)
    assert b"identity" in str(server.headers).encode()


@pytest.mark.parametrize("url", ["http://x:1/v 1", "http://x:1/v1\r\nX: y", "http://x:1/é/v1"])
def test_addresses_with_blanks_or_more_are_refused(url: str) -> None:
    with pytest.raises(UserError, match="base_url"):
        check_base_url(url)


@pytest.mark.parametrize("concurrency", [2, 9])
def test_no_more_processes_than_streams(start: Start, concurrency: int) -> None:
    _, backend = start(clients=50)
    backend.prepare([request("a"), request("b")], Load("closed", concurrency=concurrency))
    assert isinstance(backend._client, ClientProcesses)
    assert backend._client.count == 2


@pytest.mark.parametrize("ending", [b"", b"\n\n"])
def test_a_body_that_ends_with_its_connection(start: Start, ending: bytes) -> None:
    def play(reply: FakeReply) -> None:
        event = b'data: {"choices": [{"text": "x", "token_ids": [1], "finish_reason": "stop"}]}'
        head = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
        reply._handler.wfile.write(head + event + ending)
        reply.drop()

    _, backend = start(play)
    for _ in range(2):
        assert [commit.finished for commit in answer(backend)] == [None, "stop"]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b"", "closed the connection without an answer"),
        (b"HTTP/1.1 200", "closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "malformed HTTP answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "malformed HTTP answer"),
    ],
)
def test_what_is_no_http_answer(start: Start, said: bytes, message: str) -> None:
    def play(reply: FakeReply) -> None:
        reply._handler.wfile.write(said)
        reply.drop()

    server, backend = start(play)
    assert message in failure(backend)
    server.play = good
    assert answer(backend)[-1].finished == "length"


def test_an_interim_answer_is_passed_over(start: Start) -> None:
    def play(reply: FakeReply) -> None:
        reply._handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        good(reply)

    _, backend = start(play)
    assert [commit.finished for commit in answer(backend)] == [None, None, "length"]


def test_a_request_that_finds_no_socket_is_told(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, backend = start()

    def full(_route: Route) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Route, "connect", full)
    assert "Too many open files" in failure(backend)


def test_nesting_without_end_costs_the_request_only(start: Start) -> None:
    def play(reply: FakeReply) -> None:
        reply.send(b"data: " + b"[" * 200_000 + b"\n\n")
        reply.end()

    server, backend = start(play)
    assert failure(backend)
    server.play = good
    assert answer(backend)[-1].finished == "length"


def test_a_redirect_is_told_not_followed(start: Start) -> None:
    def play(reply: FakeReply) -> None:
        head = (
            b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://x/v1\r\nContent-Length: 0\r\n\r\n"
        )
        reply._handler.wfile.write(head)

    _, backend = start(play)
    assert "HTTP 307 (go to http://x/v1): Temporary Redirect" in failure(backend)


def test_a_server_that_goes_away_costs_the_requests_only(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, backend = start()
    answer(backend)
    backend.reset()
    server.close()
    monkeypatch.setattr(pool, "KEEP_ALIVE_NS", 0)
    assert "Connection refused" in failure(backend)


def test_a_request_beyond_any_socket_buffer_leaves_in_parts(start: Start) -> None:
    server, backend = start()
    asked = Request("long", (1_234_567,) * 2_000_000, 3)  # 16 MB: four times the usual largest
    assert answer(backend, asked)[-1].finished == "length"
    assert len(server.bodies[-1]["prompt"]) == 2_000_000


def test_client_processes_answer_as_one_does(start: Start) -> None:
    requests = [request(str(n)) for n in range(20)]
    load = Load("closed", concurrency=6)
    _, alone = start()
    _, apart = start(clients=3)
    found = run_load(apart, requests, load, time_limit_s=PATIENCE_S)
    expected = run_load(alone, requests, load, time_limit_s=PATIENCE_S)
    assert [g.token_ids for g in found] == [g.token_ids for g in expected]
    assert [g.telemetry for g in found] == [g.telemetry for g in expected]
    assert apart._client.texts == alone._client.texts
    assert all(g.commit_ns[0] > g.submitted_ns and g.client_lag_ns >= 0 for g in found)
    apart.reset()
    assert apart._client.texts == {}
    assert answer(apart, request("again"))[-1].finished == "length"


def test_a_client_process_that_dies_is_told(start: Start) -> None:
    release = threading.Event()
    _, backend = start(lambda reply: release.wait(PATIENCE_S), clients=2)
    backend.prepare([request("a"), request("b")], Load("closed", concurrency=2))
    workers = backend._client
    assert isinstance(workers, ClientProcesses)
    os.kill(workers._processes[0].pid, signal.SIGKILL)
    workers._processes[0].wait()
    with pytest.raises(RuntimeError, match="a client process"):
        run_load(backend, [request("a"), request("b")], Load("closed", concurrency=2))
    release.set()
    backend.reset()
    assert backend._client.texts == {}, "the next trial has processes of its own"


def test_long_prompts_and_long_answers_at_once_block_no_pipe(start: Start) -> None:
    """Both directions are full at the same time: whoever waits must still be read."""
    together = threading.Barrier(64, timeout=PATIENCE_S)

    def play(reply: FakeReply) -> None:
        if reply.body["prompt"][0] == 1:
            together.wait()
        reply.event({"choices": [{"text": "x" * 20_000, "token_ids": [1], "finish_reason": None}]})
        reply.tokens([2], "stop")
        reply.end()

    _, backend = start(play, clients=2)
    first = [Request(f"a{n}", (1,) * 10, 3) for n in range(64)]
    second = [Request(f"b{n}", (2,) * 60_000, 3) for n in range(128)]
    found = run_load(backend, [*first, *second], Load("closed", concurrency=64), time_limit_s=60)
    assert {g.finished for g in found} == {"stop"}


def test_connections_that_a_server_closes_unused_are_not_opened_for_ever(start: Start) -> None:
    server, backend = start()
    backend.prepare([request("a")], Load("closed", concurrency=1))
    taken(server, backend)
    before = server.connections
    client = backend._client
    assert isinstance(client, http_client.Client)
    for _ in range(20):
        for connection in list(client._pool.connections.values()):
            connection._socket.shutdown(socket.SHUT_RDWR)
        backend.poll()
        time.sleep(0.005)
    assert server.connections == before
    assert answer(backend)[-1].finished == "length"


def test_stale_connections_are_renewed_before_the_clock_starts(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, backend = start()
    load = Load("closed", concurrency=4)
    run_load(backend, [request(str(n)) for n in range(4)], load)
    monkeypatch.setattr(pool, "KEEP_ALIVE_NS", 0)
    backend.prepare([request(str(n)) for n in range(4)], load)
    monkeypatch.undo()
    assert len(taken(server, backend)) == 4
    before = server.connections
    for n in range(4):
        backend.submit(request(str(n)))
    collect(backend, 4)
    assert server.connections == before


def test_how_many_connections_and_processes() -> None:
    assert most_at_once([0.0, 1.0, 9.0, 10.5, 30.0], 10.0) == 3
    assert most_at_once([0.0] * 7, 10.0) == 7
    assert most_at_once([], 10.0) == 1
    cores = os.cpu_count() or 1
    assert clients_for(1) == clients_for(1000) == 1
    assert clients_for(100_000) == max(cores // 2, 1)
