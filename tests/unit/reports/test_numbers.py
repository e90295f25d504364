"""Numbers as shown: few digits, and no rounding that turns a difference into none."""

from __future__ import annotations

import pytest

from reports.numbers import counted, interval, milliseconds, percent, ratio, significant


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (0.01234, "0.0123"), (9.996, "10.0"), (85.14, "85.1"), (1234.6, "1,235")],
)  # fmt: skip
def test_significant(value: float, shown: str) -> None:
    assert significant(value) == shown


def test_milliseconds_are_a_thousand_per_second() -> None:
    assert milliseconds(0.02345) == "23.4"


@pytest.mark.parametrize(
    ("share", "shown"),
    [(1.0, "100"), (0.9999, "99.9"), (0.00001, "0.1"), (0.0, "0"), (0.583, "58.3"), (1.5, "150")],
)
def test_percent_says_all_or_none_only_when_it_is(share: float, shown: str) -> None:
    assert percent(share) == shown


def test_ratio_and_interval() -> None:
    assert ratio(1.3149) == "1.31"
    assert ratio(0.0123) == "0.012"
    assert interval(1.2, 1.4) == "[1.20, 1.40]"
    assert interval(0.0, 3.4e12) == "[0, ∞]", "two repeats that disagree"
    assert interval(0.0, 0.2, significant) == "[0, 0.200]", "a share may be 0"
    assert interval(1500, 1600, significant) == "[1,500, 1,600]"


def test_counted() -> None:
    assert [counted(1, "trial"), counted(1200, "trial")] == ["1 trial", "1,200 trials"]
