"""Queues before segments: which one runs."""

from __future__ import annotations

import random

import pytest

from backends.engine.executors.torch import TorchExecutor
from backends.engine.segments.queues import PASSED_OVER, BalancedQueues, Lockstep
from tests.support.engine.exit_streams import at_random, opened, run, streams
from tests.support.engine.random_models import random_model


def test_in_lockstep_the_deepest_runs() -> None:
    assert Lockstep().choose([3, 0, 0]) == 0
    assert Lockstep().choose([3, 1, 0]) == 1
    assert Lockstep().choose([1, 0, 2]) == 2


def test_the_longest_queue_runs_and_the_deeper_of_two() -> None:
    queues = BalancedQueues([1.0, 1.0, 1.0])
    assert queues.choose([2, 3, 1]) == 1
    assert BalancedQueues([1.0, 1.0, 1.0]).choose([2, 2, 1]) == 1


def test_what_costs_more_waits_for_more() -> None:
    assert BalancedQueues([1.0, 9.0]).choose([2, 5]) == 0
    assert BalancedQueues([1.0, 9.0]).choose([2, 7]) == 1


def test_what_few_come_to_waits_for_fewer() -> None:
    queues = BalancedQueues([1.0, 1.0])
    for _ in range(50):
        assert queues.choose([8, 0]) == 0
    assert queues.choose([7, 1]) == 1


def test_a_segment_that_seems_to_cost_nothing_is_no_error() -> None:
    assert BalancedQueues([0.0, -3.0]).choose([1, 0]) == 0


def test_nobody_is_passed_over_for_long_however_many_came_before() -> None:
    """One whose tokens go deep, beside seven whose tokens leave, after all went deep for long."""
    queues = BalancedQueues([1.0, 3.0])
    for _ in range(500):
        queues.choose([8, 0])
        queues.choose([0, 8])
    assert [queues.choose([7, 1]) for _ in range(PASSED_OVER + 2)] == [0] * PASSED_OVER + [1, 0]


def test_a_reset_forgets_what_was_chosen() -> None:
    queues, fresh = BalancedQueues([1.0, 3.0]), BalancedQueues([1.0, 3.0])
    for _ in range(500):
        queues.choose([0, 8])
    queues.choose([7, 1])
    queues.reset()
    wanted = [fresh.choose([7, 1]) for _ in range(40)]
    assert [queues.choose([7, 1]) for _ in range(40)] == wanted
    assert 1 in wanted


def passes_per_token(choice: BalancedQueues | Lockstep, under_way: int) -> float:
    """Where rows cost nothing, and two of three and three of four that come leave."""
    draw, shares, costs = random.Random(1), (0.66, 0.75), (1, 2, 5)
    ready, spent, tokens = [under_way, 0, 0], 0, 0
    while tokens < 5000:
        index = choice.choose(ready)
        inside, ready[index] = ready[index], 0
        assert inside, "an empty queue was chosen"
        left = sum(draw.random() < shares[index] for _ in range(inside)) if index < 2 else inside
        ready[0] += left
        if index < 2:
            ready[index + 1] += inside - left
        tokens, spent = tokens + left, spent + costs[index]
    return spent / tokens


@pytest.mark.parametrize(("under_way", "gain"), [(4, 1.15), (8, 1.3), (16, 1.5)])
def test_queues_take_fewer_passes_than_lockstep(under_way: int, gain: float) -> None:
    balanced = passes_per_token(BalancedQueues([1.0, 2.0, 5.0]), under_way)
    assert passes_per_token(Lockstep(), under_way) / balanced > gain


def test_a_trial_chooses_as_if_there_had_been_none_before() -> None:
    model = random_model("llama")
    decoder = opened(TorchExecutor, model, (1, 3), at_random)
    fresh, _ = run(decoder, streams(model))
    chosen = vars(decoder)["_leaving"]._segments
    assert vars(chosen) != vars(BalancedQueues(chosen._fixed)), fresh
    decoder.reset()
    assert vars(chosen) == vars(BalancedQueues(chosen._fixed))
