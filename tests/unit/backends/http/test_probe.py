"""What the probe finds out before anything is measured, and what a server costs that is away."""

from __future__ import annotations

import itertools
import socket
from typing import Any

import pytest

from backends import open_backend
from backends.http.probe.dialect import EXTRAS
from harness.core.errors import UnavailableError, UserError
from harness.core.nouns import Model
from tests.support.fake_openai import FakeReply, FakeServer, good
from tests.support.http_client import Start, answer

LOADING = {"error": {"message": "Loading model"}}


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_is_busy_for_a_moment_is_asked_again(
    start: Start, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    listed, tries = FakeServer.answer_get, itertools.count()

    def get(server: FakeServer, reply: FakeReply, path: str) -> None:
        if path == "/v1/models" and next(tries) == 0:
            reply.fail(status, LOADING)
        else:
            listed(server, reply, path)

    monkeypatch.setattr(FakeServer, "answer_get", get)
    asked = itertools.count()

    def probe(reply: FakeReply) -> None:
        good(reply) if next(asked) else reply.fail(status, LOADING)

    _, backend = start(probe=probe)
    assert answer(backend)[-1].finished == "length"


@pytest.mark.parametrize(
    ("status", "tries", "passes"),
    [(400, len(EXTRAS), False), (401, 1, False), (404, 1, False), (429, 4, True), (503, 4, True)],
)
def test_what_will_not_pass_is_told_at_once(
    start: Start, status: int, tries: int, passes: bool
) -> None:
    asked: list[dict[str, Any]] = []

    def refuse(reply: FakeReply) -> None:
        asked.append(reply.body)
        reply.fail(status, LOADING)

    with pytest.raises(UserError, match=f"HTTP {status}: Loading model") as caught:
        start(probe=refuse)
    assert isinstance(caught.value, UnavailableError) == passes
    assert len(asked) == tries
    if isinstance(caught.value, UnavailableError):
        assert caught.value.reached


def test_a_server_that_refuses_a_field_is_known_by_it(start: Start) -> None:
    def strict(reply: FakeReply) -> None:
        if "ignore_eos" in reply.body:
            reply.fail(400, {"error": {"message": "Unrecognized request argument"}})
        else:
            good(reply)

    _, backend = start(strict, strict)
    assert "ends-at-eos" in backend.info.capabilities
    assert answer(backend)[-1].finished == "length"
    _, backend = start()
    assert "ends-at-eos" not in backend.info.capabilities


def test_nobody_who_listens_is_told_from_somebody_who_breaks_off(start: Start) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(UnavailableError, match="no server answers there") as caught:
        open_backend("http", None, Model("m"), {"base_url": url})
    assert not caught.value.reached

    def drop(reply: FakeReply) -> None:
        reply.start()
        reply.drop()

    with pytest.raises(UnavailableError, match="/completions: ") as caught:
        start(probe=drop)
    assert caught.value.reached
