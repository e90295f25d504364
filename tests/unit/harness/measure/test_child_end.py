"""How a trial, and the process that measures trials, comes to its end."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Pipe
from types import SimpleNamespace
from typing import Any

import pytest

from harness.core.nouns import Generation, Load, Request
from harness.measure import child
from harness.measure.load_loop import LoadProgress
from harness.measure.messages import Ready
from tests.support.harness.sessions import make_trial


def test_a_trial_with_one_answer_has_measured_something() -> None:
    lost = Generation("r0", 0, 0, finished="error", error="lost")
    answered = Generation("r1", 0, 0, finished="stop")
    assert child._ending([lost, answered]) == ("ok", None)
    assert child._ending([lost]) == ("failed", "all 1 requests failed; r0: lost")


def test_a_warm_up_that_nobody_answered_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    backend: Any = SimpleNamespace(reset=lambda: None)
    lost = Generation("w0", 0, 0, finished="error", error="HTTP 400")
    for ended, told in (
        ([lost, lost], ["not-warmed-up: all 2 requests failed; w0: HTTP 400"]),
        ([lost, Generation("w1", 0, 0, finished="length")], []),
    ):
        monkeypatch.setattr(child, "run_load", lambda *_, found=ended, **__: found)
        requests = [Request("w0", (1,), 4), Request("w1", (1,), 4)]
        assert child._warm_up(backend, requests, Load("closed", concurrency=1), None) == told
    assert child._warm_up(backend, [], Load("closed", concurrency=1), None) == []


@pytest.fixture
def thawed() -> Iterator[None]:
    """What `serve` froze belongs to this process, which goes on."""
    yield
    gc.unfreeze()


def _serve(session: SimpleNamespace, last: EOFError | None, send: Callable[[Any], None]) -> None:
    said = iter([(lambda trial: session, make_trial()), last])

    def recv() -> Any:
        if isinstance(message := next(said), EOFError):
            raise message
        return message

    channel: Any = SimpleNamespace(recv=recv, send=send)
    meter: Any = SimpleNamespace(footprint=lambda: None)
    with contextlib.suppress(EOFError):
        child.serve(channel, meter)


@pytest.mark.usefixtures("thawed")
@pytest.mark.parametrize("last", [None, EOFError()])
def test_the_engine_is_closed_however_its_sweep_ends(last: EOFError | None) -> None:
    closed: list[str] = []
    session = SimpleNamespace(info=None, setup_s=1.0, close=lambda: closed.append("closed"))
    _serve(session, last, lambda message: None)
    assert closed == ["closed"]


@pytest.mark.usefixtures("thawed")
def test_a_loaded_engine_is_not_searched_for_garbage_at_every_trial() -> None:
    frozen: list[int] = []
    session = SimpleNamespace(info=None, setup_s=1.0, close=lambda: None, model=[[]])
    _serve(session, None, lambda message: frozen.append(gc.get_freeze_count()))
    assert frozen[0] > 1000
    assert not any(each is session.model for each in gc.get_objects())


@pytest.mark.usefixtures("thawed")
def test_garbage_is_looked_for_rarely_while_an_engine_opens() -> None:
    before, seen = gc.get_threshold(), list[int]()

    def opened(trial: Any) -> SimpleNamespace:
        seen.append(gc.get_threshold()[0])
        return SimpleNamespace(info=None, setup_s=0.0, close=lambda: None)

    said = iter([(opened, make_trial()), None])
    channel: Any = SimpleNamespace(recv=lambda: next(said), send=lambda message: None)
    meter: Any = SimpleNamespace(footprint=lambda: None)
    child.serve(channel, meter)
    assert seen[0] > 10 * before[0]
    assert gc.get_threshold() == before


@pytest.mark.usefixtures("thawed")
def test_a_sweep_that_reads_nothing_keeps_no_load_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be stopped by a signal for as long as it likes, and is told how all ended."""
    many = 10_000
    ours, theirs = Pipe()

    def trial(session: Any, job: Any, meter: Any, tell: child.Tell) -> Any:
        tell("load")
        for done in range(many):
            tell(LoadProgress(done, many, done))
        tell("scoring")
        return job

    monkeypatch.setattr(child, "run_trial", trial)
    session = SimpleNamespace(info=None, setup_s=1.0, close=lambda: None)
    said = iter([(lambda trial: session, make_trial()), "the record", None])
    channel: Any = SimpleNamespace(recv=lambda: next(said), send=theirs.send, fileno=theirs.fileno)
    meter: Any = SimpleNamespace(footprint=lambda: None)
    serving = threading.Thread(target=child.serve, args=(channel, meter), daemon=True)
    serving.start()
    serving.join(60)
    assert not serving.is_alive()
    theirs.close()
    told: list[Any] = []
    with contextlib.suppress(EOFError):
        while True:
            told.append(ours.recv())
    ours.close()
    assert isinstance(told[0], Ready)
    assert told[1:3] == ["load", LoadProgress(0, many, 0)]
    assert told[-2:] == ["scoring", "the record"]
    assert len(told) < many
