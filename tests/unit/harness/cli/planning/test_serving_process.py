"""The processes of `profile`: what an interrupt or a kill does to them, and what is said then."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from backends.checkpoints import models
from backends.tetris import measured
from harness.cli.planning.serving_process import ServingProcess
from harness.core.errors import UserError
from harness.core.nouns import Model

BEFORE_DEATH_S = 0.3
ASKED = ("classifier", [(1, 2, 3)] * 4, 1)


@pytest.fixture
def serving() -> Iterator[ServingProcess]:
    model = Model("demo-sentiment")
    options = {"classifier": {"threads": 1, "batch": 1}}
    opened = ServingProcess(model, models.resolve(model), options)
    yield opened
    opened.close()


def number(serving: ServingProcess) -> int:
    assert serving._process.pid is not None
    return serving._process.pid


def test_an_interrupt_at_a_terminal_ends_none_by_itself(
    serving: ServingProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command closes them, and none has anything to say."""
    for interrupted in (True, False):
        serving.ask(*ASKED)
        assert serving.answer().batch_ms > 0
        if interrupted:
            os.kill(number(serving), signal.SIGINT)
    serving.ask(*ASKED)
    serving.close()
    assert serving._process.exitcode == 0
    assert "Traceback" not in capfd.readouterr().err


def test_one_that_is_killed_is_told(serving: ServingProcess) -> None:
    serving.ask(*ASKED)
    serving.answer()
    os.kill(number(serving), signal.SIGSTOP)
    serving.ask(*ASKED)
    threading.Timer(BEFORE_DEATH_S, os.kill, (number(serving), signal.SIGKILL)).start()
    with pytest.raises(UserError, match="was killed or failed, perhaps for lack of memory"):
        serving.answer()
    with pytest.raises(UserError, match="was killed or failed, perhaps for lack of memory"):
        serving.ask(*ASKED)


def test_no_interrupt_ends_the_process_that_sends_back_what_it_gets() -> None:
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=measured._echo, args=(there,), daemon=True)
    other.start()
    there.close()
    for interrupted in (True, False):
        here.send_bytes(b"x")
        assert here.recv_bytes() == b"x"
        if interrupted:
            assert other.pid is not None
            os.kill(other.pid, signal.SIGINT)
    here.close()
    other.join(60)
    assert other.exitcode == 0
