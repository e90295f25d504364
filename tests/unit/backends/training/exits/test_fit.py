"""Epochs on a problem made up here: losses that are no numbers, and how often a state is saved."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.checkpoints.exit_heads import open_folder
from backends.training.exits import fit as exit_fit
from backends.training.exits.fit import Fit, FittedBatch, Objective, fit
from backends.training.exits.recipe import STATE, ExitRecipe
from backends.training.heads import fit as heads_fit
from harness.core.errors import UserError
from tests.support.engine.tiny_heads import train

RECIPE = ExitRecipe("", (1,), ("gsm8k",), epochs=6, rate=0.1)


def problem(losses: list[float]) -> Objective:
    """One number, of which each held-out loss is told beforehand, the first before any epoch."""
    told = iter(losses)

    def step(answers: list[int]) -> FittedBatch:
        return FittedBatch(torch.ones(1), torch.ones(1, 1), 1)

    return Objective([torch.zeros(1)], 1, step, lambda: [next(told)])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_a_training(tmp_path: Path, bad: float) -> None:
    (tmp_path / STATE).mkdir()
    done = fit(tmp_path, RECIPE, problem([4.0, 3.0, 2.0, bad]), lambda _: True, save_every_s=0)
    assert (done.diverged, done.epoch, done.best_loss) == (True, 2, [2.0])
    assert done.told(RECIPE)["ended"] == "a loss of epoch 3 is no number"
    assert not done.origin(RECIPE, [])["finished"]
    assert all(math.isfinite(loss) for epoch in done.held_out_loss for loss in epoch)
    kept = torch.load(tmp_path / STATE / "fit.pt", weights_only=True)
    assert (kept["epoch"], kept["diverged"]) == (2, False), "what was saved last is sound"


def test_without_a_sound_epoch_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / STATE).mkdir()
    with pytest.raises(UserError, match=r"epoch 1: a loss is not finite with --lr 0\.1; take a lo"):
        fit(tmp_path, RECIPE, problem([4.0, math.nan]), lambda _: True)
    with pytest.raises(UserError, match="not finite before anything is learnt"):
        fit(tmp_path, RECIPE, problem([math.nan]), lambda _: True)
    assert not list((tmp_path / STATE).iterdir())


def test_heads_of_the_best_epoch_are_there_when_a_later_one_breaks(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, calls = heads_fit.held_out_kl, itertools.count()

    def breaks(*told: Any) -> list[float]:
        found = measured(*told)
        return [math.nan] * len(found) if next(calls) == 3 else found

    monkeypatch.setattr(heads_fit, "held_out_kl", breaks)
    with pytest.raises(UserError) as refused:
        train(model, tmp_path)
    assert str(refused.value).startswith("epoch 3: a loss is not finite with --lr 0.003; take a ")
    assert str(refused.value).endswith(f"; {tmp_path} has what was best before")
    about = json.loads((tmp_path / "heads.json").read_text())
    assert not about["finished"]
    assert about["report"]["training"]["epochs"] == 2
    open_folder(tmp_path, model)


def test_states_that_are_slow_to_save_are_saved_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch takes a second and a save 5: the clock is the test's own."""
    clock, saved = [0.0], list[int]()

    def save(path: Path, state: Fit, adam: object) -> None:
        clock[0] += 5
        saved.append(state.epoch)

    def epoch_over(state: Fit) -> bool:
        clock[0] += 1
        return True

    monkeypatch.setattr(exit_fit, "_save", save)
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    recipe = ExitRecipe("", (1,), ("gsm8k",), epochs=120, patience=200)
    fit(tmp_path, recipe, problem([9.0] * 121), epoch_over, save_every_s=2)
    assert saved == [3, 54, 105, 120]


@pytest.mark.parametrize("seed", [20261128123456, 2**63 - 1])
def test_a_large_seed_orders_the_answers_too(tmp_path: Path, seed: int) -> None:
    (tmp_path / STATE).mkdir()
    asked: list[list[int]] = []

    def step(answers: list[int]) -> FittedBatch:
        asked.append(answers)
        return FittedBatch(torch.ones(1), torch.ones(1, 1), 1)

    many = replace(problem([9.0] * 3), answers=20, step=step)
    fit(tmp_path, replace(RECIPE, epochs=2, seed=seed), many, lambda _: True)
    assert [sorted(order) for order in asked] == [[*range(20)]] * 2
    assert asked[0] != asked[1]
