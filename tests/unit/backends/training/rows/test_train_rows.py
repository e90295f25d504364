"""Whatever is trained or calibrated on bundled rows draws from their train split."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backends.checkpoints import models
from backends.early_exit.calibration.prompts import read_groups
from backends.early_exit.calibration.settings import Settings
from backends.training.exits.data import read_prompts
from backends.training.exits.recipe import ExitRecipe
from backends.training.rows import batches
from backends.training.rows import tokenizer as training_tokenizer
from backends.training.small_models.recipe import LATE_MIX
from workloads import bundled

WORKLOADS = tuple(bundled.GENERATORS)
DEMO = models.BUNDLED["demo"]


def pool() -> None:
    tokenizer = models.load_tokenizer(DEMO)
    batches.row_pool(tokenizer, LATE_MIX, rows=2, seed=3, number=0)


def corpus() -> None:
    list(training_tokenizer.corpus(3, 0))


def exits() -> None:
    """Heads and the classifier read their prompts alike."""
    recipe = ExitRecipe("", (1,), WORKLOADS, rows=4)
    assert len(read_prompts(recipe, models.load_tokenizer(DEMO), 4096)) == 16


def thresholds() -> None:
    settings = Settings("demo", "state", WORKLOADS, rows=4)
    assert len(read_groups(settings, DEMO, models.load_tokenizer(DEMO))) == 16


@pytest.mark.parametrize("work", [pool, corpus, exits, thresholds])
def test_only_train_rows_are_drawn(
    work: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[tuple[str, str]] = set()

    def recorded(workload: str, split: Any, seed: int = 0) -> Iterator[bundled.Row]:
        asked.add((workload, split))
        return genuine(workload, split, seed)

    genuine = bundled.iter_rows
    for module in (bundled, batches, training_tokenizer):
        monkeypatch.setattr(module, "iter_rows", recorded)
    work()
    assert asked == {(workload, "train") for workload in WORKLOADS}
