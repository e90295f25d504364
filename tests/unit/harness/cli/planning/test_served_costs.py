"""What is left of a batch beside its layers, reckoned by hand."""

from __future__ import annotations

import pytest

from backends.classifiers.part_times import ENTER, FINAL, Part
from harness.cli.planning.served_costs import _Costs, _mean, _told, _Turn
from harness.cli.planning.serving_process import ServedBatch

PARTS: dict[Part, float] = {ENTER: 1.0, 1: 2.0, 2: 3.0, 3: 4.0, FINAL: 0.5}
"""Of a network of three layers with ramps behind two: 9.5 ms in layers, 4.5 in the last."""


def turn(plain: float, segmented: float, staged: float | None, scale: float = 1.0) -> _Turn:
    parts: dict[Part, float] = {part: scale * ms for part, ms in PARTS.items()}
    piped = None if staged is None else ServedBatch(scale * staged, {})
    return _Turn(ServedBatch(scale * plain, parts), ServedBatch(scale * segmented, parts), piped)


def test_what_is_around_the_layers_is_told_apart() -> None:
    """A batch of 14.5 ms has 5 beside its layers, one with two ramps 3 more. The second stage of a
    pipeline has 7.5 ms of layers, the first 2, 1 before them and a ramp."""
    found = _Costs([turn(14.5, 17.5, 9)], (1, 2), 1)
    assert found.layers == pytest.approx([2, 3, 4.5])
    assert (found.batch, found.enter, found.ramp) == pytest.approx((5, 1, 1.5))
    assert found.stage == pytest.approx(9 - 7.5)
    later = _Costs([turn(14.5, 17.5, 9)], (1, 2), 2)
    assert later.stage == pytest.approx(9 - (1 + 2 + 3 + 1.5))


def test_a_turn_is_set_against_itself_and_the_median_is_told() -> None:
    """A machine that is twice as slow in one turn and three times in another."""
    turns = [turn(14.5, 17.5, 9, scale) for scale in (3, 1, 2)]
    found = _Costs(turns, (1, 2), 1)
    assert found.layers == pytest.approx([4, 6, 9])
    assert (found.batch, found.enter, found.ramp, found.stage) == pytest.approx((10, 2, 3, 3))


def test_nothing_takes_less_than_no_time() -> None:
    found = _Costs([turn(9, 8, 1)], (1, 2), 1)
    assert (found.batch, found.ramp, found.stage) == (0, 0, 0)


def test_the_keys_of_a_profile() -> None:
    sizes = {1: [turn(5, 6, 4, 0.5)], 2: [turn(14.5, 17.5, None)], 4: [turn(14.5, 17.5, 9)]}
    told = _told({size: _Costs(some, (1, 2), 1) for size, some in sizes.items()})
    assert told["layer_ms"] == pytest.approx([2, 3, 4.5])
    assert told["ramp_ms"] == pytest.approx(1.5)
    assert told["time_share"] == pytest.approx({"1": 0.5, "2": 1, "4": 1})
    assert told["ramp_share"]["4"] == 1
    assert 0 < told["ramp_share"]["1"] <= told["ramp_share"]["2"] <= 1
    assert told["batch_ms"] == pytest.approx({"1": 0, "2": 5, "4": 5})
    assert told["enter_ms"] == pytest.approx({"1": 0.5, "2": 1, "4": 1})
    assert list(told["stage_ms"]) == ["1", "4"]


def test_processes_of_the_same_time_are_told_as_one() -> None:
    found = _mean([ServedBatch(4, {1: 1.0, FINAL: 3.0}), ServedBatch(8, {1: 2.0, FINAL: 5.0})])
    assert found == ServedBatch(6, {1: 1.5, FINAL: 4.0})
