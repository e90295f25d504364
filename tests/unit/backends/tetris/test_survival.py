"""Survival: counted by hand, under plans, by windows, and forecast."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.tetris.drift import DRIFTS, drifting
from backends.tetris.survival import RampLog, forecast, one_blas_thread

NAN = float("nan")
FEW = ((1, 0, 0), (0, 1, 0))


def log(confidence: list[list[float]], leaves: list[list[int]]) -> RampLog:
    after = tuple(range(1, len(confidence[0]) + 1))
    return RampLog(after, np.array(confidence), np.array(leaves, dtype=bool))


FOUR = log(
    [[0.9, 0.2, 0.9], [0.1, 0.8, 0.3], [0.1, 0.2, 0.9], [0.1, 0.1, 0.1]],
    [[1, 0, 1], [0, 1, 0], [0, 0, 1], [0, 0, 0]],
)
"""Inputs that would leave at ramps 1 and 3, at 2, at 3, and never."""


@pytest.mark.parametrize(
    ("cuts", "alive"),
    [
        ([1, 2, 3], [0.75, 0.5, 0.25]),
        ([], [1, 1, 1]),
        ([2], [1, 0.75, 0.75]),  # the first input would have left at ramp 1 and does not at 2
        ([1, 3], [0.75, 0.75, 0.5]),
        ([3], [1, 1, 0.5]),
    ],
)
def test_survival_under_a_plan_is_counted_jointly(cuts: list[int], alive: list[float]) -> None:
    assert FOUR.alive(cuts) == pytest.approx(alive)


def test_thresholds_take_the_place_of_decisions() -> None:
    assert FOUR.alive([1, 2, 3], [0.95, 0.15, 0.9]) == pytest.approx([1, 0.25, 0.25])


def test_who_left_and_was_not_asked_any_more_leaves_at_a_later_cut() -> None:
    told = log(
        [[0.9, NAN, NAN], [0.1, 0.9, NAN], [0.1, 0.1, 0.1]], [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    )
    assert told.alive([1, 2, 3]) == pytest.approx([2 / 3, 1 / 3, 1 / 3])
    assert told.alive([3]) == pytest.approx([1, 1, 1 / 3])
    assert told.alive([2], [0.99, 0.99, 0.99]) == pytest.approx([1, 2 / 3, 2 / 3])


@pytest.mark.parametrize(
    ("confidence", "leaves", "told"),
    [
        ([[0.1, NAN]], [[0, 0]], "was not asked"),
        ([[NAN, 0.5]], [[1, 0]], "was not asked"),
        ([[0.1, 0.2]], [[0]], "confidences"),
    ],
)
def test_a_log_that_cannot_be_is_refused(
    confidence: list[list[float]], leaves: list[list[int]], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        log(confidence, leaves)


def test_cuts_without_ramp_and_empty_logs_are_refused() -> None:
    with pytest.raises(ValueError, match="cuts \\[4\\]"):
        FOUR.alive([1, 4])
    empty = RampLog((1,), np.empty((0, 1)), np.empty((0, 1), dtype=bool))
    with pytest.raises(ValueError, match="no input"):
        empty.alive([1])
    with pytest.raises(ValueError, match="ascending"):
        RampLog((2, 1), np.empty((0, 2)), np.empty((0, 2), dtype=bool))


@settings(max_examples=4, deadline=None)
@given(st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=2), min_size=1, max_size=9))
def test_a_forecast_is_a_survival_whatever_was_measured(rows: list[list[float]]) -> None:
    found = forecast(np.array(rows), orders=FEW[:1])
    assert ((found >= 0) & (found <= 1)).all()
    assert found[1] <= found[0]


def test_the_order_with_the_least_aic_is_taken() -> None:
    """A swing needs an autoregressive term; its forecast does not change with orders that do not
    describe it."""
    shares = 0.5 + 0.2 * (-1) ** np.arange(16) + np.random.default_rng(0).normal(0, 0.01, 16)
    best = forecast(shares[:, None], orders=[(1, 0, 0)])
    assert forecast(shares[:, None], orders=FEW) == best
    assert forecast(shares[:, None], orders=FEW[::-1]) == best
    assert forecast(shares[:, None], orders=FEW[1:]) != best


def test_a_short_or_constant_history_gives_its_last_value() -> None:
    assert forecast(np.array([[0.9, 0.5], [0.8, 0.4]])).tolist() == [0.8, 0.4]
    assert forecast(np.full((20, 2), 0.25)).tolist() == [0.25, 0.25]
    assert forecast(np.zeros((20, 1))).tolist() == [0.0]


def test_the_last_value_when_no_fit_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from statsmodels.tsa.arima.model import ARIMA

    def fails(*_: object, **__: object) -> None:
        raise np.linalg.LinAlgError("singular")

    history = np.array([0.9, 0.5] * 6)[:, None]
    assert forecast(history, orders=FEW)[0] > 0.6
    monkeypatch.setattr(ARIMA, "fit", fails)
    assert forecast(history)[0] == pytest.approx(0.5)


def test_a_swing_is_foreseen() -> None:
    """It comes back every second window: the last value is wrong each time, an autoregressive term
    is not."""
    random = np.random.default_rng(0)
    shares = 0.5 + 0.2 * (-1) ** np.arange(24) + random.normal(0, 0.01, 24)
    ours = [forecast(shares[:place, None], orders=FEW)[0] for place in range(20, 24)]
    last_value = np.abs(shares[19:23] - shares[20:]).mean()
    assert last_value > 0.3
    assert np.abs(ours - shares[20:]).mean() < 0.2 * last_value


def test_drifting_workloads_have_the_survival_that_they_say() -> None:
    for kind in DRIFTS:
        found = drifting(kind, windows=9, ramps=3, inputs=20_000, seed=1)
        assert found.shape == (9, 3)
        assert (np.diff(found, axis=1) <= 0).all()
    steps = drifting("steps", windows=9, ramps=1, inputs=20_000, seed=1)[:, 0]
    first = 1 - (0.8 * 0.6 + 0.2 * 0.05)
    assert steps[:3] == pytest.approx(first, abs=0.02)
    assert steps[-1] == pytest.approx(1 - (0.2 * 0.6 + 0.8 * 0.05), abs=0.02)


def test_fits_have_one_blas_thread_and_leave_the_others_as_they_were() -> None:
    """Spinning threads took 8.9 s of two cores for one ramp's 16 fits, which take 0.6 s alone."""
    library = ctypes.CDLL(import_module("scipy.linalg.cython_blas").__file__)
    if not hasattr(library, "scipy_openblas_get_num_threads"):
        pytest.skip("SciPy has another BLAS")
    before = library.scipy_openblas_get_num_threads()
    library.scipy_openblas_set_num_threads(2)
    try:
        with one_blas_thread():
            assert library.scipy_openblas_get_num_threads() == 1
        assert library.scipy_openblas_get_num_threads() == 2
    finally:
        library.scipy_openblas_set_num_threads(before)


def test_the_first_fit_of_a_process_is_as_quiet_as_the_others() -> None:
    """Statsmodels puts a filter for its warnings before all others when it is imported."""
    code = (
        "import numpy as np; from backends.tetris.survival import forecast\n"
        "forecast(np.random.default_rng(1).random((9, 1)), orders=[(3, 0, 1)])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
