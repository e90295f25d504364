"""Processes that hang: in a job, in the middle of an answer, before a job is read."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from backends.tetris.piped_stages import LOOKS, PipedStages, StageDiedError
from tests.support.tetris import echo_stage

WITHIN_S = 1.0
MORE_THAN_A_PIPE_HOLDS = 1 << 24
TOLD = r"backend 'played': the process of stage 0 gave no answer for 1 s \(answered_within_s\)"

Stages = PipedStages[None, Any, Any]


@pytest.fixture
def stages() -> Iterator[Stages]:
    made: Stages = PipedStages("played", echo_stage.__name__, [None, None], within_s=WITHIN_S)
    yield made
    made.close()


def test_one_that_hangs_is_told_and_replaced_and_others_go_on(stages: Stages) -> None:
    stages.send(0, echo_stage.HANG)
    stages.send(1, b"1")
    assert stages.ready([0, 1]) == [1]
    assert stages.receive(1) == b"1"
    begin = time.monotonic()
    assert stages.ready([0], 20 * WITHIN_S) == [0]
    assert time.monotonic() - begin > WITHIN_S / 2
    with pytest.raises(StageDiedError, match=TOLD):
        stages.receive(0)
    stages.restart(0)
    time.sleep(3 * WITHIN_S / LOOKS)
    stages.send(0, b"again")
    assert stages.receive(0) == b"again"


def test_one_that_stops_in_the_middle_of_its_answer_hangs(stages: Stages) -> None:
    stages.send(0, MORE_THAN_A_PIPE_HOLDS)
    assert stages.ready([0]) == [0]
    time.sleep(0.1)
    os.kill(stages.pids()[0], signal.SIGSTOP)
    with pytest.raises(StageDiedError, match=TOLD):
        stages.receive(0)


def test_one_that_does_not_read_its_job_hangs(stages: Stages) -> None:
    os.kill(stages.pids()[0], signal.SIGSTOP)
    stages.send(0, bytes(MORE_THAN_A_PIPE_HOLDS))
    with pytest.raises(StageDiedError, match=TOLD):
        stages.receive(0)


def test_an_answer_that_nobody_fetches_is_an_answer(stages: Stages) -> None:
    for _ in range(2):
        stages.send(0, b"1")
        time.sleep(WITHIN_S + 3 * WITHIN_S / LOOKS)
        assert stages.receive(0) == b"1"


def test_a_job_without_hurry_takes_its_time(stages: Stages) -> None:
    pid = stages.pids()[0]
    stages.send(0, echo_stage.HANG, hurry=False)
    time.sleep(WITHIN_S + 3 * WITHIN_S / LOOKS)
    os.kill(pid, signal.SIGCONT)
    assert stages.receive(0) == echo_stage.HANG
