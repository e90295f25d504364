"""Which part of a probe counts."""

from __future__ import annotations

import numpy as np
import pytest

from results.goodput.steady import after_the_first, steady_probe
from results.metrics.arrays import Floats


def seconds(count: int) -> Floats:
    return np.arange(count).astype(np.float64)


def test_what_came_while_the_system_filled_or_emptied_does_not_count() -> None:
    """An answer takes four seconds, one comes each second; those at the ends miss."""
    due_s, times_s = seconds(40), 4.0 + 0 * seconds(40)
    met = np.ones(40, bool)
    met[:4] = met[-4:] = False
    probe = steady_probe(1.5, due_s, times_s, met, times_s / 5)
    assert probe.share == 1.0
    assert len(probe.met) == 32
    assert probe.waits is not None
    assert len(probe.waits) == 32
    assert probe.rate == pytest.approx(1.0)
    assert probe.asked == 1.5


def test_a_burst_of_misses_after_the_first_answer_stays() -> None:
    """A cut that looks for where the times settle would take it for the warm-up."""
    due_s, times_s = seconds(100), 1.0 + 0 * seconds(100)
    times_s[2:20] = 9.0
    assert after_the_first(due_s, times_s) == 1


def test_no_more_than_a_quarter_is_left_out_at_the_beginning() -> None:
    due_s = seconds(40)
    assert after_the_first(due_s, 1e3 + 0 * due_s) == 10
    assert after_the_first(due_s[:0], due_s[:0]) == 0
