"""An interrupt costs no step that was taken, and a kill no more than some seconds' worth."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from backends.training.rows.tokenizer import train_tokenizer
from backends.training.small_models import checkpoint, demo, objective, optimizers, run
from tests.unit.backends.training.small_models.test_training import recipe, same, weights


@pytest.fixture
def out(tmp_path: Path) -> Path:
    train_tokenizer(tmp_path / "model", rows_per_workload=60)
    return tmp_path / "model"


def saved_step(folder: Path) -> int | None:
    state = checkpoint.load_state(folder / run.STATE)
    return None if state is None else int(state["step"])


def interrupt(
    out: Path, patched: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool = False
) -> None:
    """Ctrl-C in the third call of a function, or right after it."""
    own, calls = getattr(owner, name), 0

    def called(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3 and not after:
            raise KeyboardInterrupt
        made = own(*arguments)
        if calls == 3:
            raise KeyboardInterrupt
        return made

    patched.setattr(owner, name, called)
    with pytest.raises(KeyboardInterrupt):
        demo.train_demo(out, recipe=recipe(steps=4), threads=1)


@pytest.mark.parametrize(
    ("owner", "name", "after", "step"),
    [(run, "set_gradients", False, 2), (run.TrainingRun, "take_step", True, 3)],
    ids=["in the third step", "after it"],
)
def test_an_interrupt_costs_no_step_that_was_taken(
    out: Path, tmp_path: Path, owner: Any, name: str, after: bool, step: int
) -> None:
    straight = Path(shutil.copytree(out, tmp_path / "straight"))
    assert demo.train_demo(straight, recipe=recipe(steps=4), threads=1)
    with pytest.MonkeyPatch.context() as patched:
        interrupt(out, patched, owner, name, after=after)
    assert saved_step(out) == step
    assert demo.train_demo(out, recipe=recipe(steps=4), threads=1)
    assert same(weights(out), weights(straight))


def test_where_no_step_was_taken_nothing_is_stored(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "set_gradients", interrupted)
    with pytest.raises(KeyboardInterrupt):
        demo.train_demo(out, recipe=recipe(steps=4), threads=1)
    assert saved_step(out) is None


@pytest.mark.parametrize("after", [False, True])
def test_weights_between_two_steps_are_not_stored(
    out: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    interrupt(out, monkeypatch, optimizers, "apply", after=after)
    assert saved_step(out) is None


def test_states_are_stored_by_time_too(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(run, "SAVES_APART", 0)
    taken = run.TrainingRun.take_step

    def killed(self: run.TrainingRun, rows: Any) -> objective.Losses:
        if self.step == 2:
            raise SystemExit
        return taken(self, rows)

    monkeypatch.setattr(run.TrainingRun, "take_step", killed)
    with pytest.raises(SystemExit):
        demo.train_demo(out, recipe=recipe(steps=4), threads=1)
    assert saved_step(out) == 2
