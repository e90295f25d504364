from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from harness.core.ceilings import Ceilings, best, ceilings_from_json

KNOWN = Ceilings(
    "cpu", "native-amx", {1: {100: 8.0, 400: 2.0}, 4: {100: 20.0, 400: 10.0}}, {4: 1e12}, {"L2": 64}
)


@pytest.mark.parametrize(
    ("size", "threads", "rate"),
    [
        (1, None, 20.0),
        (100, None, 20.0),
        (200, None, 15.0),  # halfway on a logarithmic axis
        (400, None, 10.0),
        (9_999, None, 10.0),
        (200, 1, 5.0),
        (200, 3, 15.0),  # the better one: a floor may not be too high
        (200, 8, 15.0),
        (math.inf, 4, 10.0),
    ],
)
def test_a_rate_is_read_between_what_was_measured(
    size: float, threads: int | None, rate: float
) -> None:
    assert KNOWN.read_at(size, threads) == pytest.approx(rate)


def test_fewer_threads_than_were_measured_take_the_fewest() -> None:
    only = Ceilings("cpu", "torch", {2: {100: 20.0}}, {2: 1e12}, {})
    assert only.read_at(100, 1) == 20.0


def test_more_threads_may_be_slower() -> None:
    crowded = Ceilings("cpu", "torch", {1: {100: 8.0}, 4: {100: 5.0}}, {1: 3.0, 4: 2.0}, {})
    assert (crowded.read_at(100, 3), crowded.flops(3)) == (8.0, 3.0)
    assert (crowded.read_at(100, 4), crowded.flops(4)) == (5.0, 2.0)


@pytest.mark.parametrize(("threads", "rate"), [(None, 3.0), (1, 1.0), (3, 3.0), (4, 3.0), (9, 3.0)])
def test_products_have_a_rate_by_threads(threads: int | None, rate: float) -> None:
    known = Ceilings("cpu", "torch", {1: {100: 8.0}}, {1: 1.0, 4: 3.0}, {})
    assert known.flops(threads) == rate


def test_json_and_back() -> None:
    assert ceilings_from_json(json.loads(json.dumps(KNOWN.to_json()))) == KNOWN


def test_the_better_of_two_measurements_counts() -> None:
    busy = replace(
        KNOWN, read_bytes_per_s={1: {100: 9.0, 400: 1.0}, 4: {100: 2.0, 400: 1.0}}, kernels="other"
    )
    found = best(busy, KNOWN)
    assert found.read_bytes_per_s == {1: {100: 9.0, 400: 2.0}, 4: {100: 20.0, 400: 10.0}}
    assert best(KNOWN, replace(KNOWN, bf16_flop_per_s={4: 2e12})).bf16_flop_per_s == {4: 2e12}
    assert best(busy, None) is busy
    assert best(busy, replace(KNOWN, device="cuda")) is busy
    assert best(busy, replace(KNOWN, read_bytes_per_s={1: {100: 8.0}})) is busy


@pytest.mark.parametrize(
    "spoilt",
    [
        None,
        [],
        {},
        KNOWN.to_json() | {"read_bytes_per_s": {}},
        KNOWN.to_json() | {"read_bytes_per_s": {"1": {"100": 0.0}}},
        KNOWN.to_json() | {"bf16_flop_per_s": {"1": math.nan}},
        KNOWN.to_json() | {"read_bytes_per_s": {"one": {"100": 1.0}}},
    ],
)
def test_what_is_no_ceilings_is_none(spoilt: object) -> None:
    assert ceilings_from_json(spoilt) is None
