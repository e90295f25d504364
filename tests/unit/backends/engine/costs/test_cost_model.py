from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.engine.costs.cost_model import Prediction, StepCosts, Trace, predict, replay
from tests.support.engine.draft_cycles import Played, cycle, play

LLAMA_8B_LAYER, LLAMA_8B_HEAD = 436.0, 1051.0
"""Megabytes of bf16 weights: a pass is as dear as what it reads."""

shares = st.floats(0, 1)
prices = st.floats(0.01, 100)


@st.composite
def many_costs(draw: st.DrawFn, exits: int) -> StepCosts:
    one = draw(st.lists(prices, min_size=exits + 1, max_size=exits + 1))
    more = draw(st.lists(st.floats(1, 3), min_size=exits + 2, max_size=exits + 2))
    head = draw(prices)
    return StepCosts(
        tuple(one),
        tuple(draw(st.lists(prices, min_size=exits, max_size=exits))),
        head,
        tuple(a * b for a, b in zip(one, more, strict=False)),
        head * more[-1],
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    random_state = np.random.default_rng(draw(st.integers(0, 2**32)))
    layers = tuple(range(1, 1 + draw(st.integers(1, 4))))
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    shape = (sum(lengths), len(layers))
    return Trace(
        layers,
        random_state.random(shape).astype(np.float16),
        random_state.random(shape) < draw(shares),
        np.concatenate(([0], np.cumsum(lengths))),
    )


@given(st.data(), traces(), st.integers(1, 6))
@settings(max_examples=80, deadline=None)
def test_replay_is_the_step_process(data: st.DataObject, trace: Trace, max_drafts: int) -> None:
    layers = tuple(sorted(data.draw(st.sets(st.sampled_from(trace.layers)))))
    gammas = tuple(data.draw(st.lists(shares, min_size=len(layers), max_size=len(layers))))
    costs = data.draw(many_costs(len(layers)))
    found = replay(trace, layers, gammas, costs, max_drafts)
    expected = play(trace, layers, gammas, costs, max_drafts)
    exits = range(len(layers))
    assert found.checks == tuple(expected.checks[s] for s in exits)
    assert found.exits == tuple(expected.exits[s] for s in exits)
    assert found.accepted == tuple(expected.accepted[s] for s in exits)
    assert (found.cycles, found.tokens) == (expected.cycles, expected.tokens)
    assert found.tokens == len(trace.confidence)
    assert found.cost == pytest.approx(expected.cost)
    assert found.segment_passes_per_token == pytest.approx(expected.passes / expected.tokens)
    assert found.speedup == pytest.approx(costs.per_token() * found.tokens / expected.cost)


def predicted(
    costs: StepCosts, rates: Sequence[float], acceptance: float, max_drafts: int
) -> Prediction:
    return predict(
        costs.segments,
        costs.exit_heads,
        costs.final_head,
        rates,
        acceptance,
        max_drafts,
        segment_costs_full=costs.segments_full,
        final_head_cost_full=costs.final_head_full,
    )


@pytest.mark.parametrize(
    ("rates", "acceptance", "max_drafts"),
    [((0.3, 0.5, 0.6), 0.92, 5), ((0.5, 0.6, 0.7), 0.7, 2), ((0.9, 0.0, 1.0), 0.5, 8)],
)
def test_prediction_is_the_mean_of_simulated_cycles(
    rates: tuple[float, ...], acceptance: float, max_drafts: int
) -> None:
    costs = StepCosts((2.0, 2.0, 3.0, 1.0), (0.5, 0.5, 0.7), 0.6, (2.0, 2.5, 3.0, 2.0), 0.9)
    draw = random.Random(0)
    played = Played()
    for _ in range(20_000):
        confident = [[draw.random() < e for e in rates] for _ in range(max_drafts + 1)]
        cycle(played, costs, max_drafts, confident, [draw.random() < acceptance for _ in confident])
    found = predicted(costs, rates, acceptance, max_drafts)
    assert found.tokens_per_cycle == pytest.approx(played.tokens / played.cycles, rel=0.015)
    assert found.cost_per_cycle == pytest.approx(played.cost / played.cycles, rel=0.015)
    assert found.segment_passes_per_token == pytest.approx(played.passes / played.tokens, rel=0.015)
    assert found.speedup == pytest.approx(
        costs.per_token() * played.tokens / played.cost, rel=0.015
    )


@pytest.mark.parametrize(
    ("layers", "rates", "expected"),
    [
        ((3, 3, 3, 3), (0.3, 0.5, 0.6), 1.30),
        ((3, 3, 3, 3), (0.5, 0.6, 0.7), 1.47),
        ((2, 10), (0.6,), 1.65),
    ],
)
def test_checks_of_half_a_layer_in_a_model_of_twelve(
    layers: tuple[int, ...], rates: tuple[float, ...], expected: float
) -> None:
    found = predict(layers, [0.5] * len(rates), 0.5, rates, 0.92, 5)
    assert found.speedup == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize(
    ("head", "rates", "acceptance", "expected"),
    [
        (1, (0, 0, 0), 1, 0.826),
        (1, (0.15, 0.3, 0.45), 0.94, 1.08),
        (0.5, (0.15, 0.3, 0.45), 0.94, 1.20),
    ],
)
def test_bytes_of_the_8b_model(
    head: float, rates: tuple[float, ...], acceptance: float, expected: float
) -> None:
    """No exit ever taken is what the paper measured with untrained heads (0.84 in table 3)."""
    segments = [8 * LLAMA_8B_LAYER] * 4
    found = predict(segments, [head * LLAMA_8B_HEAD] * 3, LLAMA_8B_HEAD, rates, acceptance, 5)
    assert found.speedup == pytest.approx(expected, abs=0.006)


@given(st.data(), st.integers(0, 4), shares, st.integers(1, 8))
def test_prediction_bounds(
    data: st.DataObject, exits: int, acceptance: float, max_drafts: int
) -> None:
    costs = data.draw(many_costs(exits))
    rates = data.draw(st.lists(shares, min_size=exits, max_size=exits))

    def speedup(rates: list[float], acceptance: float) -> float:
        one_head = replace(costs, final_head_full=None)
        return predicted(one_head, rates, acceptance, max_drafts).speedup

    flat = replace(costs, segments_full=None, final_head_full=None)
    found = predicted(flat, rates, acceptance, max_drafts)
    assert 1 - 1e-9 <= found.tokens_per_cycle <= max_drafts + 1 + 1e-9
    assert found.speedup <= max_drafts + 1 + 1e-9
    assert found.cost_per_cycle >= costs.per_token() - 1e-6
    assert speedup(rates, acceptance) <= speedup(rates, 1.0) + 1e-9
    assert speedup([0.0] * exits, acceptance) <= 1 + 1e-9
    assert speedup(rates, acceptance) <= found.speedup + 1e-9


def test_replay_and_prediction_agree_where_positions_are_independent() -> None:
    draw = np.random.default_rng(1)
    n = 60_000
    confidence = draw.random((n, 3))
    agrees = np.repeat(draw.random((n, 1)) < 0.9, 3, axis=1)
    trace = Trace((2, 4, 6), confidence, agrees, np.array([0, n]))
    costs = StepCosts((2.0, 2.0, 2.0, 2.0), (0.5, 0.5, 0.5), 0.5, (2.2, 2.4, 2.6, 2.8), 0.7)
    found = replay(trace, (2, 4, 6), (0.7, 0.5, 0.4), costs, 5)
    expected = predicted(costs, (0.3, 0.5, 0.6), 0.9, 5)
    assert found.exit_rates == pytest.approx((0.3, 0.5, 0.6), abs=0.01)
    assert found.acceptance == pytest.approx(0.9, abs=0.01)
    assert found.speedup == pytest.approx(expected.speedup, rel=0.01)
    assert 0.1 < found.rejection_rate < 0.3


def test_no_exits_replay_to_plain_decoding() -> None:
    trace = Trace((1,), np.ones((5, 1)), np.ones((5, 1), bool), np.array([0, 2, 5]))
    found = replay(trace, (), (), StepCosts((4.0,), (), 1.0), 5)
    assert (found.speedup, found.cycles, found.exits) == (1.0, 5, ())
    assert (found.acceptance, found.rejection_rate) == (1.0, 0.0)


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="one head fewer"):
        predict([1, 1], [], 1, [], 0.9, 5)
    with pytest.raises(ValueError, match=r"lie in \[0, 1\]"):
        predict([1, 1], [1], 1, [1.2], 0.9, 5)
    with pytest.raises(ValueError, match="acceptance"):
        predict([1, 1], [1], 1, [0.5], -0.1, 5)
    with pytest.raises(ValueError, match="max_drafts"):
        predict([1, 1], [1], 1, [0.5], 0.9, 0)
    with pytest.raises(ValueError, match="not negative"):
        predict([1, float("nan")], [1], 1, [0.5], 0.9, 5)
    with pytest.raises(ValueError, match="1 full costs"):
        predict([1, 1], [1], 1, [0.5], 0.9, 5, segment_costs_full=[1])
    trace = Trace((1, 2), np.ones((5, 2)), np.ones((5, 2), bool), np.array([0, 5]))
    costs = StepCosts((1.0, 1.0, 1.0), (0.1, 0.1), 0.1)
    with pytest.raises(ValueError, match="layer 3 is not in the trace"):
        replay(trace, (1, 3), (0.5, 0.5), costs, 5)
    with pytest.raises(ValueError, match="ascend"):
        replay(trace, (2, 1), (0.5, 0.5), costs, 5)
    with pytest.raises(ValueError, match="thresholds for 2 exits"):
        replay(trace, (1, 2), (0.5,), costs, 5)
    with pytest.raises(ValueError, match="starts"):
        Trace((1,), np.ones((5, 1)), np.ones((5, 1)), np.array([0, 4]))
    with pytest.raises(ValueError, match="expected"):
        Trace((1,), np.ones((5, 2)), np.ones((5, 1)), np.array([0, 5]))


@pytest.mark.parametrize(("sure", "exits"), [(0.75, (0,)), (float(np.nextafter(0.75, 1)), (1,))])
def test_a_confidence_equal_to_its_threshold_is_no_exit(sure: float, exits: tuple[int]) -> None:
    """As the decoder has it: above, not at."""
    trace = Trace((1,), np.array([[sure], [0.0]]), np.ones((2, 1), bool), np.array([0, 2]))
    assert replay(trace, (1,), (0.75,), StepCosts((1.0, 1.0), (0.1,), 0.1), 5).exits == exits


def test_a_threshold_between_two_16_bit_confidences_is_not_rounded_to_one() -> None:
    trace = Trace(
        (1,), np.array([[0.6], [0.0]], np.float16), np.ones((2, 1), bool), np.array([0, 2])
    )
    assert float(trace.confidence[0, 0]) > 0.6
    assert replay(trace, (1,), (0.6,), StepCosts((1.0, 1.0), (0.1,), 0.1), 5).exits == (1,)
