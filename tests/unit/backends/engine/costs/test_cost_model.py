from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.engine.costs.cost_model import Trace, replay
from harness.core.pass_costs import StepCosts

shares = st.floats(0, 1)
prices = st.floats(0.01, 100)


@dataclass
class Played:
    """Counts and cost of decoding step by step, as the algorithm is written down."""

    cost: float = 0.0
    tokens: int = 0
    cycles: int = 0
    checks: dict[int, int] = field(default_factory=dict)
    exits: dict[int, int] = field(default_factory=dict)
    accepted: dict[int, int] = field(default_factory=dict)


def cycle(
    played: Played,
    costs: StepCosts,
    max_drafts: int,
    confident: list[list[bool]],
    right: list[bool],
) -> int:
    """One cycle over frontiers; `confident[d][s]` is whether token d would leave at exit s and
    `right[d]` whether its draft would be right. Returns the tokens that it emits."""
    segments = len(costs.segments)
    done, exits = [0] * segments, list[int]()
    full = costs.segments_full or costs.segments

    def price(one: float, many: float, rows: int) -> float:
        return one + (rows - 1) * (many - one) / max_drafts

    position = 0
    while True:
        for s in range(segments):
            rows = position + 1 - done[s]
            played.cost += price(costs.segments[s], full[s], rows)
            done[s] = position + 1
            if s == segments - 1 or len(exits) == max_drafts:
                continue
            played.cost += costs.exit_heads[s]
            played.checks[s] = played.checks.get(s, 0) + 1
            if confident[position][s]:
                played.exits[s] = played.exits.get(s, 0) + 1
                exits.append(s)
                break
        else:
            break
        position += 1
    head = costs.final_head if costs.final_head_full is None else costs.final_head_full
    played.cost += price(costs.final_head, head, len(exits) + 1)
    kept = 0
    while kept < len(exits) and right[kept]:
        played.accepted[exits[kept]] = played.accepted.get(exits[kept], 0) + 1
        kept += 1
    played.cycles += 1
    played.tokens += kept + 1
    return kept + 1


def play(
    trace: Trace,
    layers: tuple[int, ...],
    gammas: tuple[float, ...],
    costs: StepCosts,
    max_drafts: int,
) -> Played:
    """What `replay` vectorises, token by token."""
    played = Played()
    columns = [trace.layers.index(layer) for layer in layers]
    over = trace.confidence[:, columns] > np.array(gammas, float)
    for begin, end in itertools.pairwise(trace.starts.tolist()):
        position = begin
        while position < end:
            confident = [over[r].tolist() for r in range(position, end - 1)]
            right = [
                bool(trace.agrees[position + i, columns[sure.index(True)]]) if any(sure) else False
                for i, sure in enumerate(confident)
            ]
            confident.append([False] * len(columns))
            position += cycle(played, costs, max_drafts, confident, right)
    return played


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
    assert found.checks == tuple(expected.checks.get(s, 0) for s in exits)
    assert found.exits == tuple(expected.exits.get(s, 0) for s in exits)
    assert found.accepted == tuple(expected.accepted.get(s, 0) for s in exits)
    assert (found.cycles, found.tokens) == (expected.cycles, expected.tokens)
    assert found.tokens == len(trace.confidence)
    assert found.speedup == pytest.approx(costs.per_token() * found.tokens / expected.cost)


def test_no_exits_replay_to_plain_decoding() -> None:
    trace = Trace((1,), np.ones((5, 1)), np.ones((5, 1), bool), np.array([0, 2, 5]))
    found = replay(trace, (), (), StepCosts((4.0,), (), 1.0), 5)
    assert (found.speedup, found.cycles, found.exits) == (1.0, 5, ())


def test_bad_numbers_are_refused() -> None:
    trace = Trace((1, 2), np.ones((5, 2)), np.ones((5, 2), bool), np.array([0, 5]))
    costs = StepCosts((1.0, 1.0, 1.0), (0.1, 0.1), 0.1)
    with pytest.raises(ValueError, match="layer 3 is not in the trace"):
        replay(trace, (1, 3), (0.5, 0.5), costs, 5)
    with pytest.raises(ValueError, match="ascend"):
        replay(trace, (2, 1), (0.5, 0.5), costs, 5)
    with pytest.raises(ValueError, match="thresholds for 2 exits"):
        replay(trace, (1, 2), (0.5,), costs, 5)
    with pytest.raises(ValueError, match=r"lie in \[0, 1\]"):
        replay(trace, (1, 2), (0.5, 1.2), costs, 5)
    with pytest.raises(ValueError, match="max_drafts"):
        replay(trace, (1, 2), (0.5, 0.5), costs, 0)
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


def test_what_was_played_costs_something_else_elsewhere() -> None:
    rng = np.random.default_rng(3)
    trace = Trace((2, 5), rng.random((60, 2)), rng.random((60, 2)) < 0.8, np.array([0, 25, 60]))
    here = StepCosts((10.0, 20.0, 60.0), (2.0, 3.0), 4.0, (12.0, 22.0, 66.0), 5.0)
    there = StepCosts((30.0, 20.0, 10.0), (5.0, 1.0), 4.0, None, None, 90.0)
    played = replay(trace, (2, 5), (0.3, 0.4), here, 4)
    assert played.at(here, 4) == played.speedup
    expected = replay(trace, (2, 5), (0.3, 0.4), there, 4).speedup
    assert played.at(there, 4) == expected != played.speedup
