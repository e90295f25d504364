"""Survival by windows, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harness.core.nouns import Generation, Label, TrialRecord
from results.metrics import arrays, survival
from results.metrics.survival import survival_series
from tests.support.results.make_trials import generation, record, trial

ASKED = {"checks_layer_2": 1.0, "checks_layer_4": 1.0, "layers_run": 4.0}


def tokens(name: str, layers: list[int], every_ms: float = 10.0) -> Generation:
    """The first token is the prompt's own, and nobody left there."""
    ends = [every_ms * (place + 1) for place in range(len(layers) + 1)]
    found = generation(name, ends, telemetry=ASKED)
    return replace(found, token_layers=[0, *layers])


def of(*found: Generation) -> arrays.RequestArrays:
    return arrays.from_record(record(trial("tetris"), found))


def labels(*layers: float, each_ms: float = 10.0) -> TrialRecord:
    found = [
        replace(
            generation(f"r{n}", [each_ms * (n + 1)], [0], telemetry={**ASKED, "layers_run": deep}),
            label=Label("yes", 0.9),
        )
        for n, deep in enumerate(layers)
    ]
    return record(trial("tetris-classifier"), found)


def test_a_window_has_the_tokens_told_in_it() -> None:
    # tokens end at 20, 30, 40, ... ms: three windows of 40 ms have 2, 4 and 4, and the last its end
    found = survival_series(of(tokens("a", [2, 4, 6, 6, 4, 2, 2, 2, 2, 4, 6])), 0.04)
    assert found is not None
    assert found.ramps == (2, 4)
    assert found.counted.tolist() == [2, 4, 5]
    assert found.alive[:, 0].tolist() == [1 / 2, 3 / 4, 2 / 5]
    assert found.alive[:, 1].tolist() == [0, 2 / 4, 1 / 5]
    assert found.begins_s.tolist() == pytest.approx([0, 0.04, 0.08])
    assert found.by_chance()[1, 0] == pytest.approx(np.sqrt(2 / np.pi * 0.75 * 0.25 / 4))


def test_what_is_behind_the_last_whole_window_is_left_out() -> None:
    found = survival_series(of(tokens("a", [6] * 10)), 0.035)
    assert found is not None
    assert found.counted.tolist() == [2, 3, 4]
    assert survival_series(of(tokens("a", [6] * 10)), 0.04) is None


def test_tokens_of_unknown_depth_and_empty_windows_are_left_out() -> None:
    late = tokens("b", [2, 0, 2])
    late.commit_ns = [stamp + 200_000_000 for stamp in late.commit_ns]
    late.token_layers.pop()
    found = survival_series(of(tokens("a", [2, 4, 6, 6, 4]), late), 0.03)
    assert found is not None
    assert found.counted.tolist() == [1, 3, 1, 1]
    assert found.begins_s.tolist() == pytest.approx([0, 0.03, 0.06, 0.21])


def test_a_short_trial_has_windows_that_hold_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = of(*(tokens(f"r{n}", [2, 6] * 20) for n in range(10)))
    found = survival_series(requests)
    assert found is not None
    assert found.counted.sum() == 400
    assert len(found.counted) == 400 // survival.LEAST_COUNTED
    monkeypatch.setattr(survival, "LEAST_COUNTED", 10)
    found = survival_series(requests)
    assert found is not None
    assert len(found.counted) == survival.MOST_WINDOWS
    monkeypatch.setattr(survival, "WINDOW_S", 0.02)
    found = survival_series(requests)
    assert found is not None
    assert found.window_s == 0.02
    monkeypatch.setattr(survival, "MOST_ASKED", 4)
    found = survival_series(requests, 0.001)
    assert found is None  # nobody was told anything within 4 ms


def test_labels_count_when_they_are_told() -> None:
    found = survival_series(arrays.from_record(labels(2, 6, 4, 6, 6, 2)), 0.02)
    assert found is not None
    assert found.counted.tolist() == [1, 2, 3]
    assert found.alive[:, 0].tolist() == pytest.approx([0, 1, 2 / 3])


def test_without_ramps_layers_or_time_there_is_nothing() -> None:
    plain = generation("a", [10, 20, 30, 40], telemetry={"layers_run": 4.0})
    assert survival_series(of(plain), 0.01) is None
    assert survival_series(of(replace(plain, telemetry=ASKED)), 0.01) is None
    assert survival_series(of(generation("a", [], telemetry=ASKED, finished="error"))) is None
    assert survival_series(of(tokens("a", [6])), 0.01) is None
