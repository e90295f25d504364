"""The numbers of figures: goodput, costs, and a workload that shifts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from backends.tetris.figures import in_turn
from backends.tetris.figures.costs import (
    cheapest_mix,
    devices_needed,
    least_price,
    planning_ms,
)
from backends.tetris.figures.goodput import IN_TURN, PIPELINE, PLAIN, best
from backends.tetris.figures.shift import AGAIN, goodput_by_mix
from backends.tetris.simulation import compare
from harness.core.errors import UserError
from tests.support.tetris.bert import BERT, point

ONE_PASS_MS = 12 * BERT.layer_ms("V100", 8)[0]
PLAIN_PER_S = 1e3 * 8 / ONE_PASS_MS
"""Of one V100 at batch 8."""


def test_the_plain_model_answers_a_batch_a_pass_on_each_device() -> None:
    assert best(point(), PLAIN) == pytest.approx(16 * PLAIN_PER_S, rel=0.02)


def test_many_devices_and_large_batches_have_as_many_requests_as_they_need() -> None:
    """Few for each client are the beginning and the end of a run: at batch 32 TETRIS over BERT was
    below 1 of 1,000 requests."""
    for batch in (8, 32):
        few = point(requests=100, batches=(batch,))
        assert best(few, PLAIN) == pytest.approx(16 * PLAIN_PER_S, rel=0.02)
        assert best(few, PIPELINE) == pytest.approx(1.21 * 16 * PLAIN_PER_S, rel=0.02)
    assert best(point(requests=100), IN_TURN) == best(point(requests=10_240), IN_TURN)
    with pytest.raises(UserError, match="3,276,800,000 requests needed, at most 10,000,000"):
        best(point(clusters=((("V100", 10_000),),), batches=(4_096,)), PLAIN)


def test_the_best_of_clusters_batches_and_copies_is_taken() -> None:
    two = point(clusters=((("V100", 2),), (("V100", 16),)), batches=(1, 8))
    assert best(two, PLAIN) == best(point(), PLAIN)
    alone = point(clusters=((("V100", 2),),))
    assert best(point(copies=(8,)), PIPELINE) == pytest.approx(8 * best(alone, PIPELINE))
    each = [best(point(copies=(copies,)), PIPELINE) for copies in (1, 8)]
    assert best(point(copies=(1, 8)), PIPELINE) == max(each)
    assert best(point(copies=(17, 1)), PIPELINE) == each[0]


@pytest.mark.parametrize("system", [PIPELINE, PLAIN, IN_TURN])
def test_nothing_is_good_where_no_plan_meets_the_slo(system: str) -> None:
    assert best(point(slo_ms=1.0), system) == 0


@pytest.mark.parametrize("slo_ms", [11.5, 12.0])
def test_what_meets_the_slo_needs_no_plan_that_does(slo_ms: float) -> None:
    """One pass is within it, and a wait for a batch before it is not, which a plan counts."""
    assert best(point(slo_ms=slo_ms), PLAIN) == pytest.approx(16 * PLAIN_PER_S, rel=0.02)
    assert best(point(slo_ms=slo_ms), PIPELINE) == 0
    assert planning_ms(point(slo_ms=slo_ms)) is None


def test_other_errors_than_a_missed_slo_are_told() -> None:
    many = point(clusters=((("V100", 60), ("P100", 60), ("K80", 60)),))
    for ask in (
        lambda: best(many, PIPELINE),
        lambda: best(many, IN_TURN),
        lambda: goodput_by_mix(many, AGAIN, (0.8,), 1.0),
        lambda: least_price(many, PIPELINE, 6_000),
    ):
        with pytest.raises(UserError, match="180 devices of 3 kinds for 12 layers: too many"):
            ask()
    assert best(many, PLAIN) > 0
    light = point(model=replace(BERT, flop=(1e-3,) * 12))
    for system in (PIPELINE, PLAIN):
        with pytest.raises(UserError, match="layer_ms of 'V100': expected times above 0"):
            best(light, system)


def test_the_cheapest_mix_of_whole_devices() -> None:
    per_s, price = {"V100": 1000.0, "P100": 700.0}, {"V100": 2.925, "P100": 1.8, "K80": 0.99}
    every = [
        a * price["V100"] + b * price["P100"]
        for a in range(10)
        for b in range(12)
        if a * 1000 + b * 700 >= 6_000
    ]
    there = dict.fromkeys(price, 100)
    assert cheapest_mix(per_s, price, 6_000, there) == pytest.approx(min(every))
    assert math.isfinite(cheapest_mix({**per_s, "K80": 0.0}, price, 6_000, there))
    assert math.isinf(cheapest_mix({"K80": 0.0}, price, 6_000, there))
    one = dict.fromkeys(price, 1)
    assert math.isinf(cheapest_mix(per_s, price, 6_000, one)), "there are no more than these"
    assert cheapest_mix(per_s, price, 1_700, one) == pytest.approx(2.925 + 1.8)


def test_the_price_of_thousands_of_devices_is_told_at_once_or_refused() -> None:
    """430 of one kind by 1,001 of another are tried in a moment."""
    per_s, price = {"a": 10.0, "b": 7.0, "c": 3.0}, {"a": 3.0, "b": 2.2, "c": 1.0}
    there = dict.fromkeys(per_s, 10_000)
    assert cheapest_mix(per_s, price, 3_000, there) == pytest.approx(900)
    kinds = {**per_s, "d": 2.0}
    with pytest.raises(UserError, match="40,000 devices of 4 kinds: too many to mix at once"):
        cheapest_mix(kinds, {**price, "d": 1.0}, 1e5, dict.fromkeys(kinds, 10_000))


def test_splits_in_turn_have_their_best_number_of_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """As every other system: one number alone starves them or misses the SLO."""
    found = best(point(), IN_TURN)
    alone = []
    for clients in compare.CLIENTS:
        in_turn.splits_in_turn.cache_clear()
        monkeypatch.setattr(in_turn, "CLIENTS", (clients,))
        alone.append(best(point(), IN_TURN))
    in_turn.splits_in_turn.cache_clear()
    assert found == max(alone) > min(alone)


def test_more_copies_than_devices_are_no_pipeline() -> None:
    assert best(point(copies=(1_000,)), PIPELINE) == 0


def test_a_rate_needs_so_many_devices() -> None:
    many = point(clusters=((("V100", 80),),))
    assert devices_needed(many, PLAIN, 6_000) == math.ceil(6_000 / (PLAIN_PER_S * 1.01))
    fewer = devices_needed(many, PIPELINE, 6_000)
    assert fewer is not None
    assert fewer < math.ceil(6_000 / PLAIN_PER_S)
    assert least_price(many, PIPELINE, 6_000) == pytest.approx(fewer * 2.925)
    assert devices_needed(point(clusters=((("V100", 1),),)), PIPELINE, 6_000) is None
    assert least_price(point(slo_ms=1.0), PLAIN, 6_000) is None


@pytest.mark.parametrize("system", [PLAIN, PIPELINE])
def test_devices_that_cost_nothing_are_counted_too(system: str) -> None:
    many = point(clusters=((("V100", 80),),))
    free = {kind: replace(one, price=0.0) for kind, one in BERT.devices.items()}
    gift = replace(many, model=replace(BERT, devices=free))
    assert devices_needed(gift, system, 6_000) == devices_needed(many, system, 6_000)
    assert least_price(gift, system, 6_000) == 0


def test_planning_takes_some_time_of_the_processor() -> None:
    took_ms = planning_ms(point(clusters=((("V100", 4),),)))
    assert took_ms is not None
    assert took_ms > 0


def test_a_plan_that_follows_the_mix_loses_less_than_one_that_does_not() -> None:
    shifting, mixes = point(requests=8_000), (0.8, 0.2)
    once, again, plain = (
        goodput_by_mix(shifting, system, mixes, 0.25) for system in (PIPELINE, AGAIN, PLAIN)
    )
    assert again[0] == pytest.approx(once[0], rel=0.05)
    assert once[0] > 1.5 * plain[0]
    assert again[1] > 1.2 * once[1]


def test_a_mix_of_few_requests_still_takes_time() -> None:
    """They are no more than the clients that a cluster could have."""
    few = point(requests=100)
    for system in (PIPELINE, PLAIN):
        found = goodput_by_mix(few, system, (0.8, 0.5, 0.2), 0.25)
        assert all(0 <= value < 1e7 for value in found)
