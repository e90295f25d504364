"""The mean over several cells: what they share counts in full, the rest cancels."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from benchmarks.support.intervals.wander import TIME_CONSTANTS_S, Floats, WanderingMachine
from results.compare.intervals.crossed import CrossedMean, crossed_mean
from results.compare.intervals.several import (
    CellEffects,
    cell_effects,
    over_cells,
    pooled_ratio,
)
from tests.support.results.made_effects import made_effects


def effects(values: Floats, prompts: str = "some", *, first: int = 0) -> CellEffects:
    found = cell_effects(values, range(first, first + len(values)), prompts)
    assert found is not None
    return found


def pooled(*cells: CellEffects) -> CrossedMean:
    found = over_cells(cells)
    assert found is not None
    return found


def noise(seed: int, shape: tuple[int, int] = (4, 10), scale: float = 0.1) -> Floats:
    return np.random.default_rng(seed).normal(0.3, scale, shape)


def test_one_cell_is_the_crossed_mean() -> None:
    values = noise(1) + np.random.default_rng(2).normal(0, 0.2, (4, 1))
    alone, found = crossed_mean(values), pooled(effects(values))
    assert alone is not None
    assert found.mean == pytest.approx(alone.mean)
    assert found.variance == pytest.approx(alone.variance, rel=1e-4)
    assert (found.repeats, found.units) == (4, 10)
    one_repeat = crossed_mean(values[:1])
    assert one_repeat is not None
    assert pooled(effects(values[:1])).variance == pytest.approx(one_repeat.variance, rel=1e-4)


def test_the_same_cell_twice_is_no_new_evidence() -> None:
    values = noise(1)
    once, twice = pooled(effects(values)), pooled(effects(values), effects(values))
    assert twice.mean == pytest.approx(once.mean)
    # what neither of both ways of pooling explains is taken for the cells' own
    assert twice.variance >= 0.95 * once.variance


def test_cells_that_share_nothing_bring_an_interval_narrower_by_the_root_of_their_number() -> None:
    cells = [effects(noise(n), f"prompts {n}", first=4 * n) for n in range(9)]
    true = 0.1**2 / 40 / 9
    assert pooled(*cells).variance == pytest.approx(true, rel=0.4)
    assert pooled(cells[0]).variance > 5 * true


def test_what_a_repeat_does_to_all_cells_alike_stays() -> None:
    by_repeat = np.array([[0.2], [-0.1], [-0.15], [0.05]])
    cells = [effects(noise(n, scale=0.001) + by_repeat, f"prompts {n}") for n in range(9)]
    assert pooled(*cells).variance == pytest.approx(pooled(cells[0]).variance, rel=0.02)
    apart = [
        effects(noise(n, scale=0.001) + by_repeat, f"prompts {n}", first=4 * n) for n in range(9)
    ]
    assert pooled(*apart).variance < pooled(*cells).variance / 6


def test_what_requests_do_under_every_load_stays() -> None:
    by_request = np.random.default_rng(3).normal(0, 0.3, (1, 10))
    same = [effects(noise(n, scale=0.001) + by_request) for n in range(4)]
    others = [effects(noise(n, scale=0.001) + by_request, f"{n}") for n in range(4)]
    assert pooled(*same).variance == pytest.approx(pooled(same[0]).variance, rel=0.02)
    assert pooled(*others).variance == pytest.approx(pooled(others[0]).variance / 4, rel=0.05)


def test_each_cell_counts_the_same() -> None:
    long, short = np.full((3, 30), 0.1), np.full((3, 2), 0.5)
    assert pooled(effects(long), effects(short, "other")).mean == pytest.approx(0.3)


def test_missing_measurements_and_rows_asked_twice() -> None:
    values = noise(5)
    values[:, 9] = np.nan
    for missing in (False, True):
        values[1, 3:] = np.nan if missing else values[1, 3:]
        found, alone = pooled(effects(values)), crossed_mean(values)
        assert alone is not None
        assert found.mean == pytest.approx(alone.mean)
        if not missing:
            assert found.variance == pytest.approx(alone.variance, rel=1e-4)
        assert alone.variance * 0.99 < found.variance < 2 * alone.variance
    rows = np.array([0, 1, 2, 3, 4, 0, 1, 2, 3, 4])
    twice = cell_effects(np.tile(noise(6, (4, 5)), 2), range(4), "some", rows)
    assert twice is not None
    assert twice.units == 5
    assert pooled(twice).variance == pytest.approx(pooled(effects(noise(6, (4, 5)))).variance)


def unfinished(cells: int) -> list[CellEffects]:
    """Of a run that goes on: the last cell alone has its second repeat, 0.1 from the first."""
    by_repeat = np.array([[0.0], [0.1]])
    return [
        effects(noise(n, (1, 24), 0.05) + by_repeat[: 1 + (n == cells - 1)], f"prompts {n}")
        for n in range(cells)
    ]


@pytest.mark.parametrize("cells", [8, 200])
def test_a_second_repeat_of_one_cell_says_less_than_one_of_all(cells: int) -> None:
    """It had less than one degree of freedom, and ends that no float holds."""
    lacking = unfinished(cells)
    both = [effects(noise(n, (1, 24), 0.05) + np.array([[0.0], [0.1]])) for n in range(8)]
    found = pooled(*lacking)
    assert found.df == pytest.approx(1, abs=0.1)
    assert found.variance > pooled(*both).variance
    ratio = pooled_ratio(lacking)
    assert ratio is not None
    assert 0.1 < ratio[1] < 1 < ratio[2] < 10


@pytest.mark.parametrize("counts", [(1,) * 7 + (2,), (1, 1, 1, 3), (2, 1, 3, 3)])
def test_where_cells_lack_repeats_it_leaves_out_the_truth_no_more_than_it_says(
    counts: tuple[int, ...],
) -> None:
    """Repeats that do the same to all cells: the variance that fits, with the degrees of freedom
    of two repeats, would miss the truth in a fifth of such runs."""
    draw = np.random.default_rng(7)
    missed = 0
    for _ in range(400):
        by_repeat = draw.normal(0, 0.1, (max(counts), 1))
        logs = [by_repeat[:own] + draw.normal(0, 0.01, (own, 8)) for own in counts]
        bounds = pooled(*(effects(cell, f"{n}") for n, cell in enumerate(logs))).bounds()
        assert bounds is not None
        missed += not bounds[0] <= 0 <= bounds[1]
    assert missed <= 400 * 0.05 + 2 * math.sqrt(400 * 0.05 * 0.95)


def test_cells_of_one_repeat_each_do_not_tell_how_repeats_differ() -> None:
    """Also where it is not the same one in all of them."""
    cells = [effects(noise(n, (1, 10)), f"prompts {n}", first=n) for n in range(3)]
    found = pooled(*cells)
    assert (found.repeats, found.variance) == (1, found.of_units)


def test_ends_that_leave_everything_open_are_ratios_too() -> None:
    far = pooled_ratio([effects(np.array([[0.0, 1.0], [400.0, 401.0]]))])
    assert far is not None
    assert 0 < far[1] < 1e-200
    assert 1e200 < far[2] < math.inf
    assert pooled_ratio([]) is None
    assert pooled_ratio([effects(np.array([[0.1], [0.3]]))]) is None


def test_nothing_and_one_request() -> None:
    assert over_cells([]) is None
    assert cell_effects(np.full((2, 3), np.nan), range(2), "some") is None
    lone = pooled(effects(np.array([[0.1], [0.3]])), effects(noise(1), "other"))
    assert lone.bounds() is None


def test_it_survives_json() -> None:
    found = effects(noise(1))
    assert CellEffects.from_plain(json.loads(json.dumps(found.plain()))) == found


def test_made_by_hand_it_has_the_interval_that_was_asked_for() -> None:
    found = pooled(made_effects(1.5, 1.4, 1.6, "some")).bounds(0.95)
    assert found is not None
    assert found == pytest.approx((math.log(1.5) - 0.0668, math.log(1.5) + 0.0668), abs=1e-3)


@pytest.mark.parametrize("repeats", [3, 4])
@pytest.mark.parametrize("time_constant_s", TIME_CONSTANTS_S)
def test_on_a_machine_that_wanders_it_leaves_out_the_truth_no_more_than_it_says(
    repeats: int, time_constant_s: float
) -> None:
    """400 comparisons of a system with itself over four cells, two of which share their requests;
    at most 7% at nominal 5%, and the chance of 400 draws."""
    machine = WanderingMachine()
    missed = 0
    for logs in machine.cells(repeats, time_constant_s, 400, 2, (2, 4, 1)):
        found = pooled(*(effects(cell, f"{place % 2}") for place, cell in enumerate(logs)))
        bounds = found.bounds()
        assert bounds is not None
        missed += not bounds[0] <= 0 <= bounds[1]
    assert missed <= 400 * 0.07 + 2 * math.sqrt(400 * 0.07 * 0.93)
