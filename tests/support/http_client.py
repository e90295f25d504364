"""A client of the `http` backend: asks, and collects what comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from backends.http.backend import HttpBackend
from backends.http.client import Client
from harness.core.nouns import Commit, Load, Request
from tests.support.fake_openai import FakeServer

PATIENCE_S = 20.0


Start = Callable[..., tuple[FakeServer, HttpBackend]]


class WordTokenizer:
    """One token per word: enough for a server that speaks text only."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [len(word) for word in text.split()]

    bos_token_id = 5

    def decode(self, ids: tuple[int, ...], skip_special_tokens: bool = False) -> str:
        return " ".join("w" * token for token in ids)


def request(name: str = "a", limit: int = 3, **more: Any) -> Request:
    return Request(name, (5, 6, 7), limit, **more)


def submit(backend: HttpBackend, asked: Request) -> None:
    """On a connection that is open already, as the load loop does it."""
    backend.prepare([asked], Load("closed", concurrency=1))
    backend.submit(asked)


def collect(backend: HttpBackend, finished: int = 1) -> list[Commit]:
    """Poll until `finished` requests are over."""
    commits: list[Commit] = []
    give_up = time.monotonic() + PATIENCE_S
    while sum(commit.finished is not None for commit in commits) < finished:
        assert time.monotonic() < give_up, f"still waiting; so far {commits}"
        commits.extend(backend.poll())
        time.sleep(0.001)
    return commits


def until(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.001)


def taken(server: FakeServer, backend: HttpBackend) -> set[int]:
    """The ports of this end of the connections that are open, once the server has taken them
    all."""
    assert isinstance(backend._client, Client)
    known = backend._client._pool.connections.values()
    ports = {connection._socket.getsockname()[1] for connection in known}
    until(lambda: ports <= set(server.ports))
    return ports


def answer(backend: HttpBackend, asked: Request | None = None) -> list[Commit]:
    backend.submit(asked or request())
    return collect(backend)


def failure(backend: HttpBackend) -> str:
    last = answer(backend)[-1]
    assert last.finished == "error"
    assert last.token_ids == ()
    assert last.error is not None
    assert "\n" not in last.error
    return last.error
