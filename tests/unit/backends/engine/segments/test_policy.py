"""The deepest queue that is long enough, else the longest."""

from __future__ import annotations

import pytest

from backends.engine.segments.policy import FillPolicy

POLICY = FillPolicy({1: (1, 1, 1), 4: (1, 2, 3)})


@pytest.mark.parametrize(
    ("ready", "under_way", "expected"),
    [
        ((1, 0, 0), 1, 0),
        ((0, 0, 1), 1, 2),
        ((1, 0, 3), 4, 2),
        ((2, 0, 2), 4, 0),
        ((1, 2, 1), 4, 1),
        ((0, 1, 2), 4, 2),
        ((0, 3, 3), 4, 2),
        ((0, 1, 1), 4, 2),
        ((0, 1, 0), 4, 1),
        ((2, 1, 2), 3, 2),
        ((1, 1, 7), 9, 2),
    ],
)
def test_the_next_pass(ready: tuple[int, ...], under_way: int, expected: int) -> None:
    assert POLICY.choose(ready, under_way) == expected


def test_numbers_between_two_take_the_smaller_one() -> None:
    assert POLICY.of(3) == (1, 1, 1)
    assert POLICY.of(100) == (1, 2, 3)
    assert FillPolicy({4: (2, 2)}).of(1) == (2, 2)
