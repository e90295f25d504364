"""A plan is for who leaves under its own cuts, and comes to what it predicts in the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from backends.tetris import own_survival, planner
from backends.tetris.pipeline.leaving import LeaveDecisions, drawn
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.profile import DeviceCluster, StageProfile, Wanted, profile_from
from backends.tetris.simulation.compare import SimulatedLoad, compare
from harness.core.errors import UserError

SHARES = {"1": 0.6, "8": 1}
CLUSTER = DeviceCluster({"V": 4}, {"V": 1.0})


def independent(inputs: int = 6000) -> LeaveDecisions:
    """At each of five ramps three of ten leave, whatever the others say."""
    return LeaveDecisions(np.random.default_rng(1).random((inputs, 5)) < 0.3)


def profile(decisions: LeaveDecisions, fill_ms: float = 0.0) -> StageProfile:
    told = {
        "layers": 6,
        "batch": 8,
        "survival": np.minimum.accumulate(decisions.alive()).tolist(),
        "layer_ms": {"V": [1.0] * 6},
        "ramp_ms": {"V": 0.0},
        "transfer_ms": 0.0,
        "fill_ms": [fill_ms] * 6,
        "time_share": {"V": SHARES},
    }
    return profile_from(told, "p")


def simulated(model: StageProfile, decisions: LeaveDecisions) -> dict[str, float]:
    found, own = own_survival.plan(model, CLUSTER, Wanted(1e4), decisions)
    assert own.ramps == found.cuts

    def under(cuts: object) -> StageTimes:
        return StageTimes(own_survival.under_cuts(model, decisions, list(cuts)))  # type: ignore[call-overload]

    load = SimulatedLoad()
    rows = compare(StageTimes(model), CLUSTER, found, decisions, load, 1e4, under=under)
    return {row.name: row.goodput_per_s for row in rows} | {"predicted": found.goodput_per_s}


@pytest.mark.parametrize("fill_ms", [0.0, 0.5])
def test_a_plan_comes_to_what_it_predicts_where_ramps_that_are_off_let_nobody_leave(
    fill_ms: float,
) -> None:
    """By the survival of all ramps a plan for 7,659 a second came to 3,791."""
    decisions = independent()
    found = simulated(profile(decisions, fill_ms), decisions)
    assert found["pipeline"] == pytest.approx(found["predicted"], rel=0.03)
    assert found["pipeline"] > 0.99 * found["plain"]


def test_it_is_no_worse_than_the_plan_by_the_survival_of_all_ramps() -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        decisions = LeaveDecisions(random.random((500, 5)) < random.random(5) * 0.5)
        model = profile(decisions)
        first = planner.plan(model, CLUSTER, Wanted(1e4))
        known = own_survival.under_cuts(model, decisions, first.cuts)
        as_it_is = planner.plan(known, CLUSTER, Wanted(1e4))
        found, own = own_survival.plan(model, CLUSTER, Wanted(1e4), decisions)
        assert found.goodput_per_s >= as_it_is.goodput_per_s * (1 - 1e-9)
        assert own.survival == tuple(decisions.alive(found.cuts).tolist())


def test_where_who_is_sure_stays_sure_it_is_the_plan_of_the_survival() -> None:
    survival = (1.0, 1.0, 0.8, 0.5, 0.4, 0.3, 0.3)
    decisions = drawn(survival, 4000, 0)
    model = profile(decisions)
    found, _ = own_survival.plan(model, CLUSTER, Wanted(1e4), decisions)
    assert found == planner.plan(model, CLUSTER, Wanted(1e4))


def test_an_slo_that_nothing_meets_is_one_line() -> None:
    decisions = independent(100)
    with pytest.raises(UserError, match="smallest"):
        own_survival.plan(profile(decisions), CLUSTER, Wanted(0.1), decisions)
