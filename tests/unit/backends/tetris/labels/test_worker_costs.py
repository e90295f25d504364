"""What a worker times when it is asked what its layers cost."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from backends.checkpoints.models import BUNDLED
from backends.classifiers.inputs import bundled_inputs
from backends.tetris.labels.jobs import LabelCostsJob, LabelStageSetup
from backends.tetris.labels.worker import LabelStage
from backends.tetris.ramps.readings import RampReading
from backends.tetris.ramps.rules import RampMemory


class NeverSure:
    """Counts what it judges."""

    dependent: ClassVar[bool] = False
    judged = 0

    def sure(self, reading: RampReading, memory: RampMemory) -> bool:
        self.judged += 1
        return False


def test_nothing_is_decided_of_a_batch_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time all inputs are judged at all ramps, as the first time."""
    rule, judged = NeverSure(), dict[int, list[int]]()

    def timed(calls: Any) -> list[float]:
        for number, call in enumerate([*calls] * 3):
            before = rule.judged
            call()
            judged.setdefault(number % len(calls), []).append(rule.judged - before)
        return [1.0 + number for number in range(len(calls))]

    monkeypatch.setattr("backends.tetris.measured.lower_quartiles_ms", timed)
    folder, ends = BUNDLED["demo-sentiment"], tuple(range(1, 8))
    setup = LabelStageSetup(str(folder), "float32", 1, 0, 8, rule, ends, black_box=True)
    prompts = tuple(bundled_inputs(folder, 4))
    LabelStage(setup).costs(LabelCostsJob(prompts, (2, 4)))
    first, second = 4 * 4, 4 * 3
    assert judged == {0: [14] * 3, 1: [28] * 3, 2: [first] * 3, 3: [second] * 3}
