"""Two backends against each other: paired by request and repeat, nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from results.compare.rivals import DecodeTimes, rival_speedup

IDS = [f"r{i}" for i in range(12)]


def times(seed: int, factor: float, repeats: int = 3) -> dict[int, DecodeTimes]:
    """Requests that differ by much, a machine that differs by repeat, and a little noise."""
    draw = np.random.default_rng(seed)
    requests = np.exp(np.random.default_rng(9).normal(0, 1, len(IDS)))
    machine = np.exp(np.random.default_rng(8).normal(0, 0.3, repeats))
    return {
        r: DecodeTimes(IDS, factor * requests * machine[r] * np.exp(draw.normal(0, 0.01, len(IDS))))
        for r in range(repeats)
    }


def test_what_both_have_in_common_cancels() -> None:
    found = rival_speedup(times(1, 1.0), times(2, 1.2))
    assert found is not None
    assert found.value == pytest.approx(1.2, rel=0.02)
    assert found.low is not None
    assert found.high is not None
    assert 1.15 < found.low < found.value < found.high < 1.25
    back = rival_speedup(times(2, 1.2), times(1, 1.0))
    assert back is not None
    assert back.value == pytest.approx(1 / found.value)


def test_requests_are_found_by_their_ids_and_repeats_by_their_numbers() -> None:
    ours, theirs = times(1, 1.0), times(2, 1.2)
    turned = {r: DecodeTimes(t.ids[::-1], t.seconds[::-1]) for r, t in theirs.items()}
    straight, mixed = rival_speedup(ours, theirs), rival_speedup(ours, turned)
    assert straight is not None
    assert mixed is not None
    assert mixed.value == pytest.approx(straight.value)
    assert rival_speedup(ours, {r + 3: t for r, t in theirs.items()}) is None
    some = rival_speedup(ours, {2: theirs[2]})
    assert some is not None
    assert some.repeats == 1


def test_what_one_side_has_not_is_no_pair() -> None:
    ours, theirs = times(1, 1.0), times(2, 1.2)
    ours[0].seconds[:] = np.nan
    theirs[1].seconds[:] = 0.0
    found, alone = rival_speedup(ours, theirs), rival_speedup({2: ours[2]}, {2: theirs[2]})
    assert found is not None
    assert alone is not None
    assert found.value == pytest.approx(alone.value)
    others = {0: DecodeTimes([name + "x" for name in IDS], ours[2].seconds)}
    assert rival_speedup({0: ours[2]}, others) is None
