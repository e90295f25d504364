"""The settings of a figure's number: survival, ramps, and who leaves."""

from __future__ import annotations

import numpy as np
import pytest

from backends.tetris.figures.in_turn import in_turn
from backends.tetris.figures.point import mixed
from backends.tetris.figures.roofline import even_survival
from backends.tetris.pipeline.stage_times import StageTimes
from tests.support.tetris.bert import BERT, point
from tests.support.tetris.four_layers import profile


def test_a_layer_takes_no_less_than_the_inputs_that_fill_a_device() -> None:
    one, full, twice = (BERT.layer_ms("V100", inputs)[0] for inputs in (1, 8, 16))
    assert one == full == pytest.approx(1e3 * 1.862270976e9 * 8 / 15.7e12)
    assert twice == pytest.approx(2 * full)
    assert BERT.told(16)["time_share"]["V100"] == {str(n): max(n, 8) / 16 for n in range(1, 17)}


def test_the_usual_threshold_of_entropy_has_the_usual_survival() -> None:
    assert BERT.at_entropy(0.4) == pytest.approx(BERT.survival)
    strict, lax = BERT.at_entropy(0.3), BERT.at_entropy(0.5)
    assert all(a > b for a, b in zip(strict[1:], lax[1:], strict=True))


def test_patience_lets_inputs_leave_so_many_ramps_later() -> None:
    early, late = point().leaving(5_000).depths(), point(patience=3).leaving(5_000).depths()
    assert (late == np.minimum(early + 2, BERT.layers)).all()
    assert point(patience=3).profile(8, staged=True).survival[:3] == (1, 1, 1)


def test_without_the_wrapper_every_ramp_of_a_stage_runs() -> None:
    on = StageTimes(point().profile(8, staged=True))
    off = StageTimes(point(wrapper=False).profile(8, staged=True))
    ramp = on.profile.ramp_ms["V100"]
    more = off.stage_ms("V100", 0, 5, 8) - on.stage_ms("V100", 0, 5, 8)
    assert more == pytest.approx(4 * ramp)
    last = off.stage_ms("V100", 9, 12, 8) - on.stage_ms("V100", 9, 12, 8)
    assert last == pytest.approx(2 * ramp)
    assert point(wrapper=False).profile(8, staged=False) == point().profile(8, staged=True)


def test_a_model_of_other_layers_is_as_deep_as_told() -> None:
    found = point(layers=24).profile(8, staged=True)
    assert found.layers == 24
    assert found.survival == pytest.approx(even_survival(24, 0.4))


def test_a_mix_has_its_share_of_inputs_that_leave_early() -> None:
    easy, hard = (mixed(12, share, 4_000, 0).depths() for share in (1.0, 0.0))
    assert (easy == 1).mean() == pytest.approx(0.6, abs=0.03)
    assert (hard == 1).mean() == pytest.approx(0.05, abs=0.02)


def test_splits_run_one_after_the_other_and_the_rest_of_a_batch_alone() -> None:
    """Two batches of two through layers 0 and 1, 2.5 ms each; three survive: a whole batch takes 2
    ms and one input alone 0.75 of it."""
    times = StageTimes(profile())
    took_ms, answers = in_turn(times, [0, 2, 4], "V100", [0, 1, 2, 3], [2, 4, 4, 4])
    assert took_ms == pytest.approx(8.5)
    assert answers == pytest.approx([5.0, 8.5, 8.5, 8.5])
