"""The bundled calibrations of the demo model: whole, honest, and of the files beside them."""

from __future__ import annotations

import pytest

from backends.checkpoints import models
from backends.checkpoints.classifier import find_classifier
from backends.early_exit.calibration.files import (
    BUNDLED,
    Calibration,
    find_calibration,
    open_calibration,
)
from backends.early_exit.calibration.learn_then_test import accepted
from backends.early_exit.calibration.settings import SEED, parameters
from backends.early_exit.policy import CONFIDENT

DEMO = models.BUNDLED["demo"]


@pytest.fixture(params=CONFIDENT)
def bundled(request: pytest.FixtureRequest) -> Calibration:
    path = find_calibration("auto", request.param, DEMO)
    assert path == BUNDLED / f"calibration-{request.param}.json"
    found = open_calibration(path, DEMO)
    assert found.measure == request.param
    return found


def test_the_choice_follows_from_the_curve(bundled: Calibration) -> None:
    tested = [point for point in bundled.curve if point.tested]
    assert bundled.curve[: len(tested)] == tuple(tested)
    number = accepted([point.p_value for point in tested], 1 - bundled.confidence)
    chosen = bundled.curve[number - 1]
    assert set(bundled.thresholds) == {chosen.threshold}
    assert bundled.risk == pytest.approx(1 - chosen.quality)
    assert bundled.bound <= 1 - bundled.target
    assert number == len(tested) - 1 or len(tested) == len(bundled.curve)


def test_they_hold_what_the_demo_says(bundled: Calibration) -> None:
    assert (bundled.metric, bundled.target, bundled.confidence) == ("rouge_l", 0.75, 0.95)
    assert set(bundled.prompts) == {"cnn_dailymail", "xsum", "humaneval", "gsm8k"}
    assert len(set(bundled.prompts.values())) == 1, "the four workloads weigh alike"
    assert bundled.seed == SEED, "rows that neither heads nor classifier were fitted to"
    assert bundled.earlier_choices == 0
    assert bundled.statement.endswith(
        "for the mixture of workloads, prompts drawn like these and decoded one at a time in "
        f"{bundled.dtype}."
    )
    assert all(1 <= point.mean_exit_layer <= 8 for point in bundled.curve)
    rates = [point.early_exit_rate for point in bundled.curve]
    assert rates == sorted(rates), "a lower threshold exits earlier"


def test_they_belong_to_the_classifier_beside_them(bundled: Calibration) -> None:
    folder = find_classifier("auto", DEMO) if bundled.measure == "classifier" else None
    assert bundled.parameters == parameters(folder, bundled.measure)
