"""The bundled calibrations of the demo model: whole, honest, and of the files beside them."""

from __future__ import annotations

import pytest

from backends.checkpoints import models
from backends.checkpoints.classifier import find_classifier
from backends.early_exit.calibration.files import (
    AUTO,
    BUNDLED,
    ROUGE,
    Calibration,
    find_calibration,
    open_calibration,
)
from backends.early_exit.calibration.learn_then_test import accepted
from backends.early_exit.calibration.settings import SEED, parameters
from backends.early_exit.policy import CONFIDENT

DEMO = models.BUNDLED["demo"]


NAMES = {AUTO: "", ROUGE: "-rouge"}
WORKLOADS = {"cnn_dailymail", "xsum", "humaneval", "gsm8k"}


@pytest.fixture(params=[(name, measure) for name in NAMES for measure in CONFIDENT])
def bundled(request: pytest.FixtureRequest) -> Calibration:
    name, measure = request.param
    path = find_calibration(name, measure, DEMO)
    assert path == BUNDLED / f"calibration-{measure}{NAMES[name]}.json"
    found = open_calibration(path, DEMO)
    assert found.measure == measure
    assert found.metric == ("score" if name == AUTO else "rouge_l")
    return found


def test_the_choice_follows_from_the_curve(bundled: Calibration) -> None:
    tested = [point for point in bundled.curve if point.tested]
    assert bundled.curve[: len(tested)] == tuple(tested)
    level = (1 - bundled.confidence) / max(1, len(bundled.candidates))
    number = accepted([point.p_value for point in tested], level)
    chosen = bundled.curve[number - 1]
    assert set(bundled.thresholds) == {chosen.threshold}
    assert bundled.risk == pytest.approx(1 - chosen.quality)
    assert bundled.bound <= 1 - bundled.target
    assert number == len(tested) - 1 or len(tested) == len(bundled.curve)
    held = [one for one in bundled.candidates if one["threshold"] is not None]
    if held:
        best = min(held, key=lambda one: one["mean_exit_layer"])
        assert best["layers"] == list(bundled.layers)
        assert best["mean_exit_layer"] == chosen.mean_exit_layer


def test_they_hold_what_the_demo_says(bundled: Calibration) -> None:
    keeps_scores = bundled.metric == "score"
    assert (bundled.target, bundled.confidence) == (0.95 if keeps_scores else 0.75, 0.95)
    assert set(bundled.prompts) == WORKLOADS
    assert len(set(bundled.prompts.values())) == 1, "the four workloads weigh alike"
    assert bundled.seed == SEED, "rows that neither heads nor classifier were fitted to"
    assert bundled.earlier_choices == 0
    over = "each of the workloads" if keeps_scores else "the mixture of workloads"
    assert bundled.statement.endswith(
        f"for {over}, prompts drawn like these and decoded one at a time in {bundled.dtype}."
    )
    assert bundled.per == ("worst" if keeps_scores else "mixture")
    assert all(1 <= point.mean_exit_layer <= 8 for point in bundled.curve)
    rates = [point.early_exit_rate for point in bundled.curve]
    assert rates == sorted(rates), "a lower threshold exits earlier"


def test_they_belong_to_the_classifier_beside_them(bundled: Calibration) -> None:
    folder = find_classifier("auto", DEMO) if bundled.measure == "classifier" else None
    assert bundled.parameters == parameters(folder, bundled.measure)
