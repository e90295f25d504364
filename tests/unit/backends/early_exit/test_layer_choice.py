"""Behind which layers a check pays."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from backends.early_exit.layer_choice import Costs, choose_layers


def simulated(
    layers: Sequence[int], own: Sequence[int], depth: int, costs: Costs, batch: int
) -> float:
    """Mean time of every step that `batch` tokens of these own exits can share, step by step."""
    times = []
    for together in itertools.product(own, repeat=batch):
        time, at = costs.fixed, 0
        for layer in layers:
            time += (layer - at) * costs.layer + costs.check
            at = layer
            if max(together) <= layer:
                time += costs.fill
                break
        else:
            time += (depth - at) * costs.layer
        times.append(time)
    return sum(times) / len(times)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("seed", range(12))
def test_the_choice_is_the_best_of_all_sets_played_through(seed: int, batch: int) -> None:
    rng = random.Random(seed)
    depth = 6
    own = [rng.choice(range(1, depth + 1)) for _ in range(12)]
    costs = Costs(100, rng.choice([5, 40, 150]), rng.choice([0, 60]), 80)
    counts = [own.count(layer) for layer in range(1, depth)]
    found = choose_layers(counts, len(own), costs, batch)
    sets = itertools.chain.from_iterable(
        itertools.combinations(range(1, depth), size) for size in range(depth)
    )
    times = {layers: simulated(layers, own, depth, costs, batch) for layers in sets}
    assert found.step_us == pytest.approx(min(times.values()))
    assert times[found.layers] == pytest.approx(found.step_us)
    assert found.full_us == pytest.approx(times[()])


def test_a_check_that_costs_more_than_it_saves_is_left_out() -> None:
    assert choose_layers([0, 1, 0], 100, Costs(10, 5, 1)).layers == ()
    assert choose_layers([0, 99, 0], 100, Costs(10, 5, 1)).layers == (2,)


def test_in_a_large_batch_an_exit_that_some_miss_pays_no_more() -> None:
    counts = [0, 90, 0, 0, 0, 0, 0]
    alone, many = (choose_layers(counts, 100, Costs(10, 5, 1), batch) for batch in (1, 32))
    assert alone.layers == (2,)
    assert many.layers == ()
    assert alone.speedup > many.speedup == 1.0


def test_more_exits_than_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="5 exits of 4 tokens"):
        choose_layers([5], 4, Costs(1, 1, 1))
