from __future__ import annotations

import pytest

from results.compare.intervals.student import t_quantile, t_tail


@pytest.mark.parametrize(
    ("p", "df", "expected"),
    [
        (0.025, 1, 12.706205),
        (0.025, 2, 4.302653),
        (0.025, 3, 3.182446),
        (0.05, 4, 2.131847),
        (0.2, 10, 0.879058),
        (0.005, 30, 2.749996),
        (0.025, 1e6, 1.959966),
    ],
)
def test_quantiles_of_the_printed_tables(p: float, df: float, expected: float) -> None:
    assert t_quantile(p, df) == pytest.approx(expected, abs=1e-6)
    assert t_tail(expected, df) == pytest.approx(p, rel=1e-5)


def test_half_lies_above_the_middle() -> None:
    assert t_quantile(0.5, 3.0) == 0.0
    assert t_tail(0.0, 3.0) == pytest.approx(0.5)
