"""How long a server is waited for that is there, but says nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from backends.http.probe import dialect
from backends.http.probe import server as asked_server
from harness.core.errors import UnavailableError
from tests.support.fake_openai import FakeReply, FakeServer, good
from tests.support.http_client import PATIENCE_S, Start


@pytest.fixture
def silence() -> Iterator[threading.Event]:
    """What keeps a server silent, until the test is over."""
    over = threading.Event()
    yield over
    over.set()


def test_each_test_request_has_its_own_time(start: Start) -> None:
    taken_s: list[float] = []

    def slow(reply: FakeReply) -> None:
        time.sleep(0.3)
        taken_s.append(0.3)
        good(reply)

    start(slow, slow, timeout_s=1.0)
    assert sum(taken_s) > 1.0


def test_a_model_that_is_loaded_for_its_first_answer_is_waited_for(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_server, "PATIENCE_S", 1.0)
    loaded: list[bool] = []

    def play(reply: FakeReply) -> None:
        if not loaded:
            time.sleep(1.5)
            loaded.append(True)
        good(reply)

    start(play, play, timeout_s=PATIENCE_S)
    assert loaded


def test_a_server_that_is_found_and_then_silent_is_there(
    start: Start, silence: threading.Event
) -> None:
    asked: list[FakeReply] = []

    def play(reply: FakeReply) -> None:
        asked.append(reply)
        silence.wait(PATIENCE_S)

    with pytest.raises(UnavailableError, match="completions did not answer within 1 s") as caught:
        start(play, play, timeout_s=1.0)
    assert caught.value.reached
    assert len(asked) == 1, "another try would take as long"


def test_a_long_prompt_that_nobody_answers_is_asked_once_and_not_for_long(
    start: Start, silence: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialect, "PATIENCE_S", 0.5)
    asked: list[FakeReply] = []

    def play(reply: FakeReply) -> None:
        if len(reply.body["prompt"]) > dialect.REPEATED:
            asked.append(reply)
            silence.wait(PATIENCE_S)
        else:
            good(reply)

    _, backend = start(play, play, timeout_s=PATIENCE_S)
    assert "cache-telemetry" not in backend.info.capabilities
    assert len(asked) == 1


@pytest.mark.parametrize("piece", [b"", b"# nothing to see\n" * 100])
def test_metrics_without_an_end_are_not_read_for_long(
    start: Start, silence: threading.Event, monkeypatch: pytest.MonkeyPatch, piece: bytes
) -> None:
    limit_s = 2 * PATIENCE_S if piece else 0.5
    monkeypatch.setattr(asked_server, "METRICS_TIMEOUT_S", limit_s)
    monkeypatch.setattr(asked_server, "LONGEST_METRICS", 1000)
    answer_get = FakeServer.answer_get
    waited_out: list[bool] = []

    def get(server: FakeServer, reply: FakeReply, path: str) -> None:
        if path != "/metrics":
            answer_get(server, reply, path)
            return
        reply.start(content_type="text/plain")
        if piece:
            reply.send(piece)
        waited_out.append(not silence.wait(PATIENCE_S))

    monkeypatch.setattr(FakeServer, "answer_get", get)
    start(timeout_s=2 * PATIENCE_S)
    assert not waited_out


def test_what_does_not_even_list_its_models_may_be_another_address(
    start: Start, silence: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def get(server: FakeServer, reply: FakeReply, path: str) -> None:
        asked.append(path)
        silence.wait(PATIENCE_S)

    monkeypatch.setattr(FakeServer, "answer_get", get)
    with pytest.raises(UnavailableError, match="/v1 did not answer within 1 s") as caught:
        start(timeout_s=1.0)
    assert not caught.value.reached
    assert asked == ["/v1/models"]
