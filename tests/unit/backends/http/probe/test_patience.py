"""How long a server is waited for that is there, but says nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

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
