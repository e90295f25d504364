"""The exit layer of a batch: the formula against simulation, and both against counted steps."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.early_exit.plugin.telemetry import DecodedStep
from harness.core.nouns import Load
from results.metrics import batch_exits
from results.metrics.batch_exits import BatchExits, Profile
from results.rows import cells, summaries
from tests.support.results.make_trials import decoded, record, trial
from tests.support.results.report_runs import TECHNIQUES, write_run
from tests.support.results.stored_runs import of, run_of

DEPTH = 8


def rising(first: float, step: float) -> Profile:
    """A sequence that is confident after layer l with a chance that rises evenly with l."""
    staying, cumulative = 1.0, [0.0]
    for layer in range(1, DEPTH):
        staying *= 1 - (first + step * (layer - 1))
        cumulative.append(1 - staying)
    return Profile(tuple(cumulative), 1000)


def test_a_profile_of_the_known_example() -> None:
    """4.2 of 8 layers alone, 6.3 in batches of 4 and 7.65 in batches of 16: the example that the
    loss is usually told with. It does not print its profile; this one has all three figures."""
    own = rising(0.0875, 0.0687)
    found = [own.layer(batch) for batch in (1, 4, 16)]
    assert found == pytest.approx([4.2, 6.3, 7.65], abs=0.035)


@pytest.mark.parametrize("batch", [1, 2, 5, 16])
@pytest.mark.parametrize("shares", [(0.5, 0.3, 0.2), (0.9, 0.0, 0.1), (0.02, 0.03, 0.95)])
def test_the_formula_is_the_mean_of_the_greatest(shares: Sequence[float], batch: int) -> None:
    layers = np.array([2, 5, DEPTH])
    cumulative = np.cumsum([shares[list(layers).index(x)] if x in layers else 0 for x in range(8)])
    own = Profile(tuple(cumulative.tolist()), 1)
    drawn = np.random.default_rng(7).choice(layers, (200_000 // batch, batch), p=shares)
    greatest = drawn.max(axis=1)
    error = 5 * float(greatest.std()) / len(greatest) ** 0.5 + 1e-3
    assert own.layer(batch) == pytest.approx(float(greatest.mean()), abs=error)


def test_all_exits_of_two_sequences_come_to_it() -> None:
    """Every pair of exits by its probability, without drawing any."""
    chances = {2: 0.25, 4: 0.5, 8: 0.25}
    pairs = itertools.product(chances, repeat=2)
    exact = sum(max(pair) * chances[pair[0]] * chances[pair[1]] for pair in pairs)
    own = Profile((0.0, 0.0, 0.25, 0.25, 0.75, 0.75, 0.75, 0.75), 1)
    assert own.layer(2) == exact
    assert own.layer(1) == 2 * 0.25 + 4 * 0.5 + 8 * 0.25


def test_larger_batches_leave_later_and_never_beyond_the_last_layer() -> None:
    found = [rising(0.1, 0.05).layer(batch) for batch in range(1, 200)]
    assert found == sorted(found)
    assert found[-1] <= DEPTH
    assert Profile((0.0,) * DEPTH, 1).layer(9) == DEPTH
    assert Profile((0.0, 0.0, *(1.0,) * 6), 1).layer(9) == 2


def counted(
    folder: Path, steps: int, exits: Callable[[int], list[int]], **more: Any
) -> dict[str, Any]:
    """The row of a trial whose steps have these own exits, as the backend counts them."""

    def step(number: int) -> DecodedStep:
        own = exits(number)
        return DecodedStep([f"r{i}" for i in range(len(own))], DEPTH, max(own), own, (2, 4), **more)

    generations = decoded(step(number) for number in range(steps))
    return of(summaries(run_of(folder, record(trial("exits"), generations))), "exits")


def test_counts_of_a_trial_come_to_a_profile(tmp_path: Path) -> None:
    exits = [[2, 4, 8], [2, 2, 2], [4, 2, 2], [2, 8, 2]]
    row = counted(tmp_path, 4, exits.__getitem__)
    own = batch_exits.profile(row)
    assert own is not None
    assert own.tokens == 12
    assert own.cumulative == pytest.approx((0, 0, 8 / 12, 8 / 12, *(10 / 12,) * 4))
    assert own.layer(1) == pytest.approx((8 * 2 + 2 * 4 + 2 * 8) / 12)
    assert batch_exits.measured(row) == [BatchExits(3, 4.0, (8 + 2 + 4 + 8) / 4)]
    assert row["early_exit_rate_own"] == pytest.approx(1 - own.layer(1) / DEPTH)
    assert row["mean_exit_layer"] == pytest.approx(5.5)


def test_counted_independent_batches_are_as_predicted(tmp_path: Path) -> None:
    draw = random.Random(2)
    sizes = [draw.randrange(1, 7) for _ in range(6000)]
    row = counted(tmp_path, 6000, lambda i: draw.choices((2, 4, 8), (6, 3, 1), k=sizes[i]))
    own, found = batch_exits.profile(row), batch_exits.measured(row)
    assert own is not None
    assert [one.batch for one in found] == [1, 2, 3, 4, 5, 6]
    assert sum(one.steps for one in found) == pytest.approx(6000)
    predicted = batch_exits.expected(found, own)
    for one, theory in zip(found, predicted, strict=True):
        assert one.layer == pytest.approx(theory.layer, abs=0.3)
    assert batch_exits.mean_layer(found) == pytest.approx(
        batch_exits.mean_layer(predicted) or 0, abs=0.08
    )


def test_sequences_that_are_alike_leave_between_alone_and_theory(tmp_path: Path) -> None:
    draw = random.Random(3)

    def alike(_: int) -> list[int]:
        first = draw.choice((2, 4, 8))
        return [first if draw.random() < 0.8 else draw.choice((2, 4, 8)) for _ in range(4)]

    row = counted(tmp_path, 500, alike)
    own, (found,) = batch_exits.profile(row), batch_exits.measured(row)
    assert own is not None
    assert own.layer(1) < found.layer < own.layer(4) - 0.3


def test_nothing_counted_is_no_profile(tmp_path: Path) -> None:
    assert batch_exits.profile({}) is None
    assert batch_exits.measured({}) == []
    assert batch_exits.mean_layer([]) is None
    mixed = counted(tmp_path, 3, lambda _: [DEPTH, DEPTH], mixed=True)
    assert batch_exits.profile(mixed) is None
    assert mixed["mixed_step_share"] == 1.0


def test_a_cell_pools_its_repeats(tmp_path: Path) -> None:
    run = run_of_one(tmp_path)
    (cell,) = [cell for cell in cells(run) if cell["exits_by_batch"]]
    rows = [row for row in summaries(run) if row["exits_by_batch"]]
    assert len(rows) == 2
    for size, counts in cell["exits_by_batch"].items():
        parts = [row["exits_by_batch"].get(size, {"steps": 0, "layers": 0}) for row in rows]
        assert counts["steps"] == pytest.approx(sum(part["steps"] for part in parts))
        assert counts["layers"] == pytest.approx(sum(part["layers"] for part in parts))
    assert cell["mixed_steps"] == sum(row["mixed_steps"] for row in rows) > 0
    own = batch_exits.profile(cell)
    assert own is not None
    assert own.tokens == sum(part.tokens for row in rows if (part := batch_exits.profile(row)))


def run_of_one(folder: Path) -> Any:
    from results import load

    return load(
        write_run(
            folder, engines=TECHNIQUES[:3:2], workloads=["gsm8k"], repeats=2, requests=12,
            loads=[Load("closed", concurrency=4)],
        )
    )  # fmt: skip


def test_a_step_counts_once_for_each_of_its_sequences() -> None:
    """Ten steps of one sequence at layer 2 and ten of three at layer 6: 40 tokens, 200 layers."""
    found = [BatchExits(1, 10, 2.0), BatchExits(3, 10, 6.0)]
    assert batch_exits.mean_layer(found) == (10 * 2 + 30 * 6) / 40
    assert batch_exits.mean_layer([]) is None


def test_more_exits_than_tokens_are_no_share_above_one() -> None:
    """A preempted request may be counted twice."""
    own = batch_exits.profile(
        {
            "exits_by_batch": {"1": {"steps": 10.0, "layers": 20.0}},
            "exits_by_layer": {"2": {"own_exits": 11.0}},
            "model_layers": 4.0,
        }
    )
    assert own is not None
    assert (own.cumulative, own.layer(3)) == ((0.0, 0.0, 1.0, 1.0), 2.0)
