"""Costs of drafting as steps are made, timed by a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from backends.engine.costs.draft_costs import DraftModelCosts
from backends.engine.costs.row_costs import RowCosts, lower_quartiles, pass_costs, turn_us
from backends.engine.costs.timing import ENOUGH_S, FEWEST_RUNS
from backends.engine.executors.torch import TorchExecutor
from tests.support.engine.random_models import random_model

FLAT = RowCosts((1, 2), (100.0, 100.0), 100, 0.0)
SMALL = RowCosts((1, 2), (10.0, 10.0), 100, 0.0)


@dataclass
class Clock:
    """Stands still but for what runs."""

    now: float = 0.0
    last: tuple[str, str] = "", ""
    """What ran last."""

    def takes(self, name: str, us: float, behind_others: float = 0.0) -> Callable[..., None]:
        """Takes so long behind itself twice, and so much longer behind anything else."""

        def run(*_: Any) -> None:
            self.now += 1e-6 * (us + behind_others * (self.last != (name, name)))
            self.last = self.last[1], name

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("backends.engine.costs.row_costs.time.perf_counter", lambda: found.now)
    return found


def test_a_pass_is_timed_behind_others_like_itself(clock: Clock) -> None:
    calls = {rows: clock.takes(str(rows), 10.0 * rows, 500.0) for rows in (1, 2)}
    assert lower_quartiles(calls) == pytest.approx({1: 10.0, 2: 20.0})


def test_a_long_pass_settles_by_itself(clock: Clock) -> None:
    """One run to warm up behind one to settle, and the fewest that count: those of a large model
    are what opening it takes."""
    long_us = 1e6 * ENOUGH_S + 1
    assert lower_quartiles({1: clock.takes("long", long_us)}) == pytest.approx({1: long_us})
    assert clock.now == pytest.approx(1e-6 * long_us * (2 + FEWEST_RUNS))


def test_what_two_models_cost_each_other_is_found(clock: Clock) -> None:
    verifying: Any = SimpleNamespace(advance=clock.takes("verify", 100.0, 30.0))
    drafting: Any = SimpleNamespace(continued=clock.takes("draft", 10.0, 5.0))
    assert turn_us(verifying, drafting, FLAT, SMALL) == pytest.approx(35.0)


def test_two_models_that_seem_quicker_together_cost_nothing_more(clock: Clock) -> None:
    verifying: Any = SimpleNamespace(advance=clock.takes("verify", 90.0))
    drafting: Any = SimpleNamespace(continued=clock.takes("draft", 10.0))
    assert turn_us(verifying, drafting, FLAT, SMALL) == 0


def test_turns_are_among_the_costs_of_a_model_that_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = "backends.engine.costs.draft_costs."
    executor: Any = object()
    drafting: Any = object()
    monkeypatch.setattr(costs + "turn_us", lambda *_: 35.0)
    monkeypatch.setattr(costs + "row_costs", lambda one: FLAT if one is executor else SMALL)
    monkeypatch.setattr(costs + "pass_costs", lambda one: SMALL if one is drafting else FLAT)
    assert DraftModelCosts.measure(executor, drafting) == DraftModelCosts(FLAT, SMALL, 35.0)


def test_a_step_that_is_to_draft_pays_for_the_turn() -> None:
    costs = DraftModelCosts(FLAT, SMALL, 35.0)
    assert costs.of(3, 100, [1.0, 0.5], [1.0, 0.5]) == [100, 145, 155]
    # the first pass is run before anybody knows that its token is too unsure
    assert costs.of(1, 100, [0.5, 0.0], [0.5, 0.0]) == [100, 145, 150]


@pytest.mark.parametrize("max_len", [2, 3, 8, 9, 20])
def test_costs_of_a_short_context_stay_in_it(max_len: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight tokens and a second row were asked for whatever there was room for."""

    def timed(calls: Mapping[int, Callable[[], object]]) -> dict[int, float]:
        for call in calls.values():
            call()
        return dict.fromkeys(calls, 100.0)

    monkeypatch.setattr("backends.engine.costs.row_costs.lower_quartiles", timed)
    model = random_model("llama")
    room: dict[str, Any] = {"slots": 1, "max_len": max_len}
    verifying, drafting = (TorchExecutor(model.weights, model.architecture, **room) for _ in "ab")
    verify, draft = pass_costs(verifying), pass_costs(drafting)
    assert verify.positions + verify.rows[-1] <= max_len
    assert turn_us(verifying, drafting, verify, draft) >= 0
