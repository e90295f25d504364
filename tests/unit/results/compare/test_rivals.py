"""Two backends against each other: paired by request and repeat, nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from results.compare.intervals.several import over_cells
from results.compare.rivals import RequestTimes, rival_effects
from results.metrics.arrays import Floats

IDS = [f"r{i}" for i in range(12)]


def times(seed: int, factor: float, repeats: int = 3) -> dict[int, RequestTimes]:
    """Requests that differ by much, a machine that differs by repeat, and a little noise."""
    draw = np.random.default_rng(seed)
    requests = np.exp(np.random.default_rng(9).normal(0, 1, len(IDS)))
    machine = np.exp(np.random.default_rng(8).normal(0, 0.3, repeats))
    return {
        r: RequestTimes(
            IDS, factor * requests * machine[r] * np.exp(draw.normal(0, 0.01, len(IDS)))
        )
        for r in range(repeats)
    }


def rival(ours: dict[int, RequestTimes], theirs: dict[int, RequestTimes]) -> Floats | None:
    """The speed-up and the ends of its interval."""
    found = rival_effects(ours, theirs, "some")
    pooled = over_cells([found]) if found else None
    if pooled is None:
        return None
    bounds = pooled.bounds()
    assert bounds is not None
    return np.exp([pooled.mean, *bounds])


def test_what_both_have_in_common_cancels() -> None:
    found = rival(times(1, 1.0), times(2, 1.2))
    assert found is not None
    value, low, high = found
    assert value == pytest.approx(1.2, rel=0.02)
    assert 1.15 < low < value < high < 1.25
    back = rival(times(2, 1.2), times(1, 1.0))
    assert back is not None
    assert back[0] == pytest.approx(1 / found[0])


def test_requests_are_found_by_their_ids_and_repeats_by_their_numbers() -> None:
    ours, theirs = times(1, 1.0), times(2, 1.2)
    turned = {r: RequestTimes(t.ids[::-1], t.seconds[::-1]) for r, t in theirs.items()}
    straight, mixed = rival(ours, theirs), rival(ours, turned)
    assert straight is not None
    assert mixed is not None
    assert mixed[0] == pytest.approx(straight[0])
    assert rival(ours, {r + 3: t for r, t in theirs.items()}) is None
    some = rival_effects(ours, {2: theirs[2]}, "some")
    assert some is not None
    assert list(some.shares) == [2]


def test_what_one_side_has_not_is_no_pair() -> None:
    ours, theirs = times(1, 1.0), times(2, 1.2)
    ours[0].seconds[:] = np.nan
    theirs[1].seconds[:] = 0.0
    found, alone = rival(ours, theirs), rival({2: ours[2]}, {2: theirs[2]})
    assert found is not None
    assert alone is not None
    assert found[0] == pytest.approx(alone[0])
    others = {0: RequestTimes([name + "x" for name in IDS], ours[2].seconds)}
    assert rival({0: ours[2]}, others) is None
