"""The server of known truth, on its wire: what it logs is what happened."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import pytest

from harness.cli.truth.server import Answered, take_log, truth_server

TTFT_S, GAP_S = 0.05, 0.01
LAST = b"0\r\n\r\n"
"""What a body ends with."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with truth_server(TTFT_S, [GAP_S, 2 * GAP_S]) as found:
        yield found


@pytest.fixture
def fresh(url: str) -> str:
    take_log(url)
    return url


def connect(url: str, **options: Any) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname is not None
    return socket.create_connection((parts.hostname, parts.port or 80), timeout=20, **options)


def request(name: int = 7, tokens: int = 4, **fields: Any) -> bytes:
    body = {"prompt": [name, 2], "max_tokens": tokens, "stream": True} | fields
    path = "/v1/chat/completions" if "messages" in fields else "/v1/completions"
    return post(path, json.dumps(body).encode())


def post(path: str, content: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (
        path.encode(),
        len(content),
        content,
    )


def read_answers(connection: socket.socket, count: int) -> bytes:
    pieces, rest, found = [], b"", 0
    while found < count:
        data = connection.recv(1 << 20)
        assert data, "closed in the middle"
        found += (rest + data).count(LAST) - rest.count(LAST)
        rest = (rest + data)[1 - len(LAST) :]
        pieces.append(data)
    return b"".join(pieces)


def events(said: bytes) -> list[Any]:
    lines = [line[6:] for line in said.split(b"\n") if line.startswith(b"data: ")]
    assert lines.pop() == b"[DONE]"
    return [json.loads(line) for line in lines]


def ask(url: str, **fields: Any) -> list[Any]:
    with connect(url) as connection:
        connection.sendall(request(**fields))
        return events(read_answers(connection, 1))


def one(url: str) -> Answered:
    (found,) = take_log(url)
    return found


def test_no_token_leaves_before_its_time(fresh: str) -> None:
    before = time.monotonic_ns()
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(fresh)) for _ in range(8)]
        for name, connection in enumerate(connections):
            connection.sendall(request(name, 4))
            time.sleep(0.0007)
        said = [events(read_answers(connection, 1)) for connection in connections]
    after = time.monotonic_ns()
    rows = take_log(fresh)
    assert [row.name for row in rows] == list(range(8))
    for row, answer in zip(rows, said, strict=True):
        assert (row.sizes, len(answer)) == ([1, 1, 1, 1], 4)
        assert before <= row.arrived_ns <= row.sent_ns[0] - round(TTFT_S * 1e9)
        assert row.due_ns == row.arrived_ns + round(TTFT_S * 1e9)
        due = [row.due_ns + round(gaps * GAP_S * 1e9) for gaps in (0, 1, 3, 4)]
        assert all(at >= planned for at, planned in zip(row.sent_ns, due, strict=True))
        assert row.sent_ns[-1] <= after


def test_the_log_starts_anew(fresh: str) -> None:
    ask(fresh)
    assert len(take_log(fresh)) == 1
    assert take_log(fresh) == []


def test_what_is_sent_is_what_was_asked_for(fresh: str) -> None:
    plain = ask(fresh, tokens=2)
    assert [e["choices"][0]["finish_reason"] for e in plain] == [None, "length"]
    assert "token_ids" not in plain[0]["choices"][0]
    *tokens, usage = ask(
        fresh, tokens=3, return_token_ids=True, stream_options={"include_usage": True}
    )
    assert [len(e["choices"][0]["token_ids"]) for e in tokens] == [1, 1, 1]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    chat = ask(fresh, messages=[], max_tokens=None, max_completion_tokens=2)
    assert [e["choices"][0]["delta"]["content"] for e in chat] == [" a", " a"]


def test_several_tokens_in_a_chunk() -> None:
    with truth_server(0.0, [0.0], tokens_per_chunk=3) as url:
        said = ask(url, tokens=8, return_token_ids=True)
        assert [len(e["choices"][0]["token_ids"]) for e in said] == [3, 3, 2]
        assert one(url).sizes == [3, 3, 2]


def test_requests_on_one_connection_are_answered_one_after_the_other(fresh: str) -> None:
    with connect(fresh) as connection:
        connection.sendall(request(1) + request(2) + request(3))
        said = read_answers(connection, 3)
        connection.sendall(request(4))
        read_answers(connection, 1)
    assert said.count(b"HTTP/1.1 200 OK") == 3
    rows = take_log(fresh)
    assert [row.name for row in rows] == [1, 2, 3, 4]
    assert all(b.sent_ns[0] > a.sent_ns[-1] for a, b in pairwise(rows))


def test_a_request_arrives_with_its_last_piece(fresh: str) -> None:
    whole = request(5)
    with connect(fresh) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (whole[:20], whole[20:-3], whole[-3:]):
            time.sleep(0.02)
            last_ns = time.monotonic_ns()
            connection.sendall(piece)
        read_answers(connection, 1)
    row = one(fresh)
    assert row.name == 5
    assert row.arrived_ns >= last_ns


def test_a_client_that_reads_nothing_holds_up_its_own_answer_only() -> None:
    with truth_server(0.0, [0.0]) as url, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        parts = urlsplit(url)
        deaf.connect((parts.hostname, parts.port))
        tokens = 40_000
        deaf.sendall(request(1, tokens))
        for _ in range(3):
            assert len(ask(url, name=2, tokens=50)) == 50
        sent = take_log(url)[0].sent_ns
        assert len(sent) < tokens, "tokens count as sent that nobody has room for"
        deaf.settimeout(60)
        assert len(events(read_answers(deaf, 1))) == tokens


def test_a_client_that_leaves_is_forgotten(fresh: str) -> None:
    with connect(fresh) as connection:
        connection.sendall(request(1, 1000))
        assert connection.recv(100)
    assert len(ask(fresh, name=2)) == 4
    left, stayed = take_log(fresh)
    assert len(left.sent_ns) < 1000
    assert len(stayed.sent_ns) == 4


def test_what_other_tools_ask_for_first(fresh: str) -> None:
    parts = urlsplit(fresh)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    for method, path in (("GET", "/health"), ("HEAD", "/v1/models"), ("GET", "/v1/models?x=1")):
        connection.request(method, path)
        answer = connection.getresponse()
        content = answer.read()
        assert (answer.status, content == b"") == (200, method == "HEAD")
    assert json.loads(content)["data"][0]["id"] == "m"
    body = {"prompt": "a", "max_tokens": 3, "return_token_ids": True}
    connection.request("POST", "/v1/completions", json.dumps(body))
    whole = json.loads(connection.getresponse().read())
    assert (whole["choices"][0]["text"], whole["usage"]["completion_tokens"]) == (" a a a", 3)
    connection.close()
    assert take_log(fresh) == []


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"max_tokens": "many"}'])
def test_nonsense_is_refused_and_the_server_goes_on(fresh: str, content: bytes) -> None:
    with connect(fresh) as connection:
        connection.sendall(post("/v1/completions", content))
        assert connection.recv(1000).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        connection.sendall(request(6))
        read_answers(connection, 1)
    assert one(fresh).name == 6


def test_it_ends_with_its_standard_input() -> None:
    command = [sys.executable, "-m", "harness.cli.truth.server"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert len(ask(url)) == 4
        process.stdin.close()
        assert process.wait(20) == 0
