"""Answers' heads, and what client processes are told and tell."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from backends.http import workers
from backends.http.connection import Connection
from backends.http.reply import Reply
from backends.http.workers import ClientProcesses
from harness.core.nouns import Commit


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
    ],
)
def test_a_connection_is_kept_as_long_as_the_server_keeps_it(head: bytes, kept: bool) -> None:
    reply = Reply()
    reply.feed(head + b"Content-Length: 2\r\n\r\nok")
    assert reply.complete
    assert reply.take() == b"ok"
    assert reply.keeps_alive == kept


def test_a_commit_is_the_same_behind_the_pipe() -> None:
    commit = Commit(
        *("a", (1, 2), "error", {"cached_tokens": 3.0}, "lost"),
        arrived_ns=4,
        stamp_lag_ns=5,
        sent_ns=6,
    )
    assert Commit(*workers._row(commit)) == commit


def test_connections_are_shared_out_among_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[Any, ...]] = []
    monkeypatch.setattr(workers, "_tell", lambda *message: told.append(message))
    monkeypatch.setattr(ClientProcesses, "_wait_for", lambda self, word: None)
    three = object.__new__(ClientProcesses)
    three.count, three._channels = 3, cast(Any, ["a", "b", "c"])
    three.open(7)
    assert told == [("a", "open", [3, 3]), ("b", "open", [2, 2]), ("c", "open", [2, 2])]
    told.clear()
    three.open(1, 7)
    assert told == [("a", "open", [1, 3]), ("b", "open", [1, 2]), ("c", "open", [1, 2])]


def test_a_connection_is_quiet_until_the_server_speaks_or_closes() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    route = cast(Any, SimpleNamespace(connect=lambda: ours))
    connection = Connection(route, None)
    assert connection.is_quiet()
    theirs.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert not connection.is_quiet()
    ours.recv(100)
    assert connection.is_quiet()
    theirs.close()
    assert not connection.is_quiet()
    connection.close()
