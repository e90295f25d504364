"""A fake server with the backend connected to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from backends.http.backend import HttpBackend
from tests.support.fake_openai import FakeServer, Play, good
from tests.support.http_client import Start


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is away is tried as often, but at once."""
    monkeypatch.setattr("backends.http.backend.WAITS_S", (0.0, 0.0, 0.0))


@pytest.fixture
def start() -> Iterator[Start]:
    opened: list[Any] = []

    def start(
        play: Play = good, probe: Play | None = good, tokenizer: Any = None, **options: Any
    ) -> tuple[FakeServer, HttpBackend]:
        server = FakeServer(play, probe)
        opened.append(server)
        if "resets" in options:
            server.resets = options.pop("resets")
        settings = {name: option.default for name, option in HttpBackend.OPTIONS.items()}
        backend = HttpBackend(settings | {"base_url": server.url, **options}, tokenizer)
        opened.append(backend)
        return server, backend

    yield start
    for item in reversed(opened):
        item.close()
