"""What a worker times when it is asked what its layers cost."""

from __future__ import annotations

from typing import Any

import pytest

from backends.checkpoints.models import BUNDLED
from backends.classifiers.inputs import bundled_inputs
from backends.tetris.labels.jobs import LabelCostsJob, LabelStageSetup
from backends.tetris.labels.worker import LabelStage
from backends.tetris.ramps.rules import EntropyRule


def test_nothing_is_decided_of_a_batch_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time as many ramps are asked as the first time."""
    asked: dict[int, list[int]] = {}

    def timed(calls: Any) -> list[float]:
        for number, call in enumerate([*calls] * 3):
            ramps = sum(len(one.asked) for one in call().inputs)
            asked.setdefault(number % len(calls), []).append(ramps)
        return [1.0 + number for number in range(len(calls))]

    monkeypatch.setattr("backends.tetris.measured.lower_quartiles_ms", timed)
    folder, ends = BUNDLED["demo-sentiment"], tuple(range(1, 8))
    setup = LabelStageSetup(str(folder), "float32", 1, 0, 8, EntropyRule(0.2), ends, black_box=True)
    prompts = tuple(bundled_inputs(folder, 4))
    LabelStage(setup).costs(LabelCostsJob(prompts, (2, 4)))
    assert [len(set(counts)) for counts in asked.values()] == [1] * 4
    assert asked[1][0] > asked[0][0] > 0
