"""A process that computes gradients is killed: all steps before are kept, whatever it did then."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from pathlib import Path

import pytest
import torch

from backends.training.rows.batches import Example
from backends.training.rows.tokenizer import train_tokenizer
from backends.training.small_models import checkpoint, demo, objective, run
from backends.training.small_models.workers import ShardProcesses
from harness.core.errors import UserError
from tests.unit.backends.training.small_models.test_training import recipe, same, weights

BEFORE_DEATH_S = 0.3


def kill(shards: ShardProcesses | None, *, asked: bool) -> None:
    """Before it is asked for gradients; or once it is, while it does not answer."""
    assert shards is not None
    victim = shards._processes[0]
    assert victim.pid is not None
    if asked:
        os.kill(victim.pid, signal.SIGSTOP)
        threading.Timer(BEFORE_DEATH_S, os.kill, (victim.pid, signal.SIGKILL)).start()
    else:
        victim.kill()
        victim.join()


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU computes all shards in one process")
@pytest.mark.parametrize("asked", [False, True])
def test_no_step_is_lost_with_a_process(
    asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight, out = tmp_path / "straight", tmp_path / "model"
    train_tokenizer(straight, rows_per_workload=60)
    shutil.copytree(straight, out)
    assert demo.train_demo(straight, recipe=recipe(steps=4), threads=1)
    taken = run.TrainingRun.take_step

    def deadly(self: run.TrainingRun, rows: list[Example]) -> objective.Losses:
        if self.step == 2:
            kill(self._workers, asked=asked)
        return taken(self, rows)

    monkeypatch.setattr(run.TrainingRun, "take_step", deadly)
    with pytest.raises(UserError, match="a training process was killed or failed, perhaps for"):
        demo.train_demo(out, recipe=recipe(steps=4), threads=2)
    state = checkpoint.load_state(out / run.STATE)
    assert state is not None
    assert state["step"] == 2
    monkeypatch.undo()
    assert demo.train_demo(out, recipe=recipe(steps=4), threads=1)
    assert same(weights(out), weights(straight))


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU computes all shards in one process")
def test_an_interrupt_at_a_terminal_ends_no_process_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_tokenizer(tmp_path, rows_per_workload=60)
    taken = run.TrainingRun.take_step

    def interrupted(self: run.TrainingRun, rows: list[Example]) -> objective.Losses:
        if self.step == 1:
            assert self._workers is not None
            for process in self._workers._processes:
                assert process.pid is not None
                os.kill(process.pid, signal.SIGINT)
        return taken(self, rows)

    monkeypatch.setattr(run.TrainingRun, "take_step", interrupted)
    assert demo.train_demo(tmp_path, recipe=recipe(steps=2), threads=2)
