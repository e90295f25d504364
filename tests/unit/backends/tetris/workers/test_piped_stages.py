"""Processes that hang: in a job, in the middle of an answer, before a job is read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.tetris.workers import piped_stages
from backends.tetris.workers.piped_stages import LOOKS, PipedStages, StageDiedError
from backends.tetris.workers.places import ProcessPlace
from harness.core.errors import UserError
from tests.support.tetris import echo_stage

WITHIN_S = 3.0
"""Longer than a machine stands still that other tests share."""
MORE_THAN_A_PIPE_HOLDS = 1 << 24
TOLD = r"'played': the process of stage 1 gave no answer in its time \(answered_within_s: 3\)"
STOPPED_S = 7.0
"""More than `PARENT` gives its stage."""
PARENT = """
from backends.tetris.workers.piped_stages import PipedStages
from backends.tetris.workers.places import ProcessPlace
from tests.support.tetris import echo_stage
stages = PipedStages("played", ProcessPlace(echo_stage.__name__), [None], within_s=5.0)
stages.send(0, echo_stage.HANG)
print(*stages.pids(), flush=True)
print(stages.receive(0), flush=True)
"""

Stages = PipedStages[None, Any, Any]
PLACE = ProcessPlace(echo_stage.__name__)


@pytest.fixture
def stages() -> Iterator[Stages]:
    made: Stages = PipedStages("played", PLACE, [None, None], within_s=WITHIN_S)
    yield made
    made.close()


def test_one_that_hangs_is_told_and_replaced_and_others_go_on(stages: Stages) -> None:
    begin = time.monotonic()
    stages.send(0, echo_stage.HANG)
    stages.send(1, b"1")
    assert stages.ready([0, 1]) == [1]
    assert stages.receive(1) == b"1"
    assert stages.ready([0], 20 * WITHIN_S) == [0]
    assert time.monotonic() - begin > WITHIN_S / 2
    with pytest.raises(StageDiedError, match=TOLD):
        stages.receive(0)
    stages.restart(0)
    time.sleep(3 * WITHIN_S / LOOKS)
    stages.send(0, b"again")
    assert stages.receive(0) == b"again"
    os.kill(stages.pids()[0], signal.SIGKILL)
    stages.send(0, b"once more")
    with pytest.raises(StageDiedError, match="ended with code -9"):
        stages.receive(0)
    stages.send(1, b"2")
    assert stages.receive(1) == b"2", "who is idle does not hang"


def test_one_that_does_not_open_in_another_s_place_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piped_stages, "OPENED_WITHIN_S", WITHIN_S)
    setups: list[Any] = [None]
    made: Stages = PipedStages("played", PLACE, setups, within_s=WITHIN_S)
    try:
        setups[0] = echo_stage.HANG
        made.start_anew(0)
        assert made.ready([0], 20 * WITHIN_S) == [0]
        with pytest.raises(StageDiedError, match=TOLD):
            made.opened(0)
    finally:
        made.close()


def test_what_a_stage_raises_is_told_and_ends_nothing(stages: Stages) -> None:
    stages.send(0, echo_stage.BREAK)
    with pytest.raises(RuntimeError, match=r"'played': stage 1: ZeroDivisionError: played"):
        stages.receive(0)
    stages.send(0, echo_stage.FILL)
    with pytest.raises(MemoryError, match=r"'played': stage 1: MemoryError: played"):
        stages.receive(0)
    stages.send(0, b"1")
    assert stages.receive(0) == b"1"


def test_what_is_refused_or_raised_at_the_opening_is_told() -> None:
    for setup, kind, words in (
        (echo_stage.REFUSE, UserError, "^played$"),
        (echo_stage.BREAK, RuntimeError, "'played': stage 2: ZeroDivisionError: played"),
    ):
        with pytest.raises(kind, match=words):
            PipedStages("played", PLACE, [None, setup])


def test_what_is_refused_in_another_s_place_is_no_bad_input() -> None:
    """It was good when the first one opened."""
    setups: list[Any] = [None]
    made: Stages = PipedStages("played", PLACE, setups)
    try:
        setups[0] = echo_stage.REFUSE
        with pytest.raises(RuntimeError, match="'played': stage 1 opened again: played"):
            made.restart(0)
    finally:
        made.close()


def test_nobody_hangs_while_everything_stood_still() -> None:
    """As in a container that is paused."""
    root = Path(__file__).parents[5]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, cwd=root, text=True
    )
    assert parent.stdout is not None
    stage = int(parent.stdout.readline())
    parent.send_signal(signal.SIGSTOP)
    time.sleep(STOPPED_S)
    parent.send_signal(signal.SIGCONT)
    time.sleep(3 * WITHIN_S / LOOKS)
    os.kill(stage, signal.SIGCONT)
    assert parent.communicate(timeout=600)[0] == f"{echo_stage.HANG}\n"


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


def test_one_that_stops_in_the_middle_of_an_answer_that_is_fetched_late_hangs(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given its time once more, and no more."""
    given: list[int] = []
    give = stages._give

    def noted(index: int, within_s: float) -> None:
        given.append(index)
        give(index, within_s)

    monkeypatch.setattr(stages, "_give", noted)
    stages.send(0, MORE_THAN_A_PIPE_HOLDS)
    time.sleep(WITHIN_S + 3 * WITHIN_S / LOOKS)
    os.kill(stages.pids()[0], signal.SIGSTOP)
    with pytest.raises(StageDiedError, match=TOLD):
        stages.receive(0)
    assert given == [0, 0], "with the job, and for being fetched"


def test_a_job_without_hurry_takes_its_time(stages: Stages) -> None:
    pid = stages.pids()[0]
    stages.send(0, echo_stage.HANG, hurry=False)
    time.sleep(WITHIN_S + 3 * WITHIN_S / LOOKS)
    os.kill(pid, signal.SIGCONT)
    assert stages.receive(0) == echo_stage.HANG
