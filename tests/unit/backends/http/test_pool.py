"""How many connections lie ready, and a server that has a thread for few of them."""

from __future__ import annotations

import json
import queue
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from backends.http.backend import HttpBackend
from backends.http.client import Client
from harness.core.nouns import Load, Request
from tests.support.http_client import PATIENCE_S, Start, answer, request

THREADS = 3
CHUNK = {"choices": [{"text": "a", "token_ids": [1], "finish_reason": "stop"}]}
ANSWER = b"data: " + json.dumps(CHUNK).encode() + b"\n\ndata: [DONE]\n\n"


def _answer(target: bytes) -> tuple[bytes, bytes]:
    """(type, body) of the answer to a path."""
    if target.endswith(b"/models"):
        return b"application/json", b'{"data": [{"id": "m"}]}'
    return b"text/event-stream", ANSWER if target.endswith(b"/completions") else b""


def _serve(waiting: queue.Queue[socket.socket]) -> None:
    """One thread: it stays with a connection until that is closed or idle for long."""
    while True:
        with waiting.get() as near:
            near.settimeout(PATIENCE_S)
            received = b""
            while True:
                head, end, rest = received.partition(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                length = sum(int(x[15:]) for x in lines if x.startswith(b"content-length:"))
                if end and len(rest) >= length:
                    received = rest[length:]
                    kind, body = _answer(head.split(b" ")[1])
                    told = b"Content-Type: %b\r\nContent-Length: %d" % (kind, len(body))
                    near.sendall(b"HTTP/1.1 200 OK\r\n" + told + b"\r\n\r\n" + body)
                    continue
                try:
                    data = near.recv(65536)
                except OSError:
                    break
                if not data:
                    break
                received += data


@pytest.fixture
def threaded() -> Iterator[str]:
    """The address of a server with a thread for each of `THREADS` connections, as llama.cpp's."""
    waiting: queue.Queue[socket.socket] = queue.Queue()
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def accept() -> None:
        while True:
            try:
                waiting.put(listener.accept()[0])
            except OSError:
                return

    for work in [accept] + [lambda: _serve(waiting)] * THREADS:
        threading.Thread(target=work, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    listener.close()


def test_connections_that_lie_ready_keep_no_request_from_a_thread(threaded: str) -> None:
    settings = {name: option.default for name, option in HttpBackend.OPTIONS.items()}
    backend = HttpBackend(settings | {"base_url": threaded}, None)
    requests = [Request(f"r{n}", (1,), 3, arrival_s=0.05 * n) for n in range(40)]
    backend.prepare(requests, Load("constant", rate=20.0))
    # one after the other: of four at once, after a stall, one has no thread with reason
    for asked in requests:
        sent_s = time.monotonic()
        assert answer(backend, asked)[-1].finished == "stop"
        assert time.monotonic() - sent_s < PATIENCE_S / 2
    backend.close()


@pytest.mark.parametrize(
    ("load", "gap_s", "opened"),
    [
        (Load("closed", concurrency=7), 0.0, 7),
        (Load("closed", concurrency=70), 0.0, 40),
        (Load("constant", rate=5.0), 0.2, 2),
        (Load("constant", rate=125.0), 0.008, 32),
        (Load("trace"), 0.0, 40),
    ],
)
def test_as_many_are_opened_ahead_as_requests_come_within_a_handshake(
    start: Start, load: Load, gap_s: float, opened: int
) -> None:
    _, backend = start()
    backend.prepare([request(str(n), arrival_s=n * gap_s) for n in range(40)], load)
    assert isinstance(backend._client, Client)
    assert len(backend._client._pool.connections) == opened
