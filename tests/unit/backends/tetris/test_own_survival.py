"""A plan is for who leaves under its own cuts, and comes to what it predicts in the simulator."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from backends.tetris import own_survival, planner
from backends.tetris.pipeline.leaving import LeaveDecisions, drawn
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.profile import DeviceCluster, StageProfile, Wanted, profile_from
from backends.tetris.simulation.compare import SimulatedLoad, compare
from harness.core.errors import UserError
from tests.support.tetris.every_plan import WrittenPlan, plans_with, wished

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


@pytest.mark.parametrize(
    ("wanted", "most"),
    [
        (Wanted(5.0), 3),
        (Wanted(5.0, rate=900), 5),
        (Wanted(1e4, target=1e6), 23),
        (Wanted(1e4, budget=0.5), 3),
    ],
)
def test_what_cannot_be_is_found_out_without_a_plan_for_each_choice_of_cuts(
    wanted: Wanted, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 32 choices was planned, and was told the smallest SLO that it meets."""
    decisions = independent()
    asked: list[StageProfile] = []
    for name in ("plan_or_none", "least_slo_ms"):
        one = getattr(planner, name)

        def counted(*told: Any, one: Any = one, **more: Any) -> Any:
            asked.append(told[0])
            return one(*told, **more)

        monkeypatch.setattr(planner, name, counted)
    with pytest.raises(UserError):
        own_survival.plan(profile(decisions), CLUSTER, wanted, decisions)
    assert len(asked) <= most


def instances() -> Iterator[tuple[StageProfile, LeaveDecisions, DeviceCluster, Wanted]]:
    """Inputs of different hardness at ramps that see it with noise, on one kind of device or two,
    for every kind of wish."""
    random = np.random.default_rng(5)
    for _ in range(150):
        layers = int(random.integers(4, 8))
        hardness, noise = random.normal(0, 1, (200, 1)), random.normal(0, 1, (200, layers - 1))
        decisions = LeaveDecisions(
            hardness + random.choice([0.3, 1.0]) * noise < np.arange(1, layers) * 2 / layers - 1
        )
        if random.random() < 0.5:  # whatever the others say
            decisions = LeaveDecisions(random.random((60, layers - 1)) < 0.4)
        ramps = sorted(random.choice(np.arange(1, layers), 3, replace=False).tolist())
        devices = {"V": int(random.integers(1, 4)), "K": int(random.integers(1, 3))}
        told = {
            "layers": layers,
            "batch": 8,
            "survival": decisions.alive().tolist(),
            "layer_ms": {"V": [1.0] * layers, "K": [float(random.choice([1, 3]))] * layers},
            "ramp_ms": {"V": float(random.choice([0.1, 0.6])), "K": 0.3},
            "transfer_ms": 0.1,
            "fill_ms": [float(random.choice([0.0, 0.3]))] * layers,
        }
        wanted = [Wanted(1e4), Wanted(40), Wanted(1e4, rate=900), Wanted(1e4, target=900)]
        wanted += [Wanted(1e4, budget=3.0), Wanted(15), Wanted(15, slack_ms=3.0)]
        cluster = DeviceCluster(devices, {"V": 2.0, "K": float(random.choice([0.5, 2]))})
        model = replace(profile_from(told, "p"), ramps=tuple(ramps))
        yield model, decisions, cluster, wanted[int(random.integers(7))]


def written(
    model: StageProfile, decisions: LeaveDecisions, cluster: DeviceCluster, wanted: Wanted
) -> list[WrittenPlan]:
    """Every plan within what is wanted, each by the survival under exactly its cuts."""
    every: list[WrittenPlan] = []
    for number in range(4):
        for cuts in itertools.combinations(model.ramps or (), number):
            known = replace(model, survival=tuple(decisions.alive(cuts).tolist()))
            every += plans_with(cuts, known, cluster, wanted.rate)
    return wished(every, wanted)


def test_of_few_ramps_no_choice_of_cuts_is_better() -> None:
    kept = 0
    for model, decisions, cluster, wanted in instances():
        every = written(model, decisions, cluster, wanted)
        if not every:
            with pytest.raises(UserError):
                own_survival.plan(model, cluster, wanted, decisions)
            continue
        found, own = own_survival.plan(model, cluster, wanted, decisions)
        order = planner.better_first(wanted)
        assert order(found) == pytest.approx(min(map(order, every)), rel=1e-6)
        assert own == own_survival.under_cuts(model, decisions, found.cuts)
        kept += 1
    assert kept > 100


def named(told: pytest.ExceptionInfo[UserError], words: str) -> float:
    found = re.search(rf"{words} ([\d.]+)", str(told.value))
    assert found is not None, told.value
    return float(found[1])


@pytest.mark.parametrize("most_ramps", [own_survival.MOST_RAMPS, 0])
def test_what_a_refusal_names_is_what_plans_have_by_their_own_survival(
    most_ramps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The highest goodput and the smallest SLO were told by the survival of all ramps, which no
    plan has, or nothing was: "no plan"."""
    for model, decisions, cluster, wanted in itertools.islice(instances(), 40):
        monkeypatch.setattr(own_survival, "MOST_RAMPS", most_ramps)
        lax = replace(wanted, slo_ms=1e6, target=None)
        every = written(model, decisions, cluster, lax)
        least = min(one.latency_ms for one in every) + wanted.slack_ms
        tight = replace(lax, slo_ms=0.999 * least)
        with pytest.raises(UserError, match=rf"^--slo-ms {tight.slo_ms:g}: no plan") as told:
            own_survival.plan(model, cluster, tight, decisions)
        slo_ms = named(told, "smallest SLO that a plan meets is")
        found, _ = own_survival.plan(model, cluster, replace(lax, slo_ms=slo_ms), decisions)
        assert found.latency_ms + wanted.slack_ms <= slo_ms * (1 + 1e-9)
        assert most_ramps == 0 or slo_ms == pytest.approx(least, rel=1e-5)
        most = max(one.goodput_per_s for one in every)
        if wanted.rate is not None:
            continue
        far = replace(lax, target=1.001 * most)
        with pytest.raises(UserError, match=rf"^--target {far.target:g}: not enough") as told:
            own_survival.plan(model, cluster, far, decisions)
        target = named(told, "highest goodput is")
        found, _ = own_survival.plan(model, cluster, replace(far, target=target), decisions)
        assert found.goodput_per_s >= target * (1 - 1e-9)
        assert most_ramps == 0 or target == pytest.approx(most, rel=1e-5)


def test_of_many_ramps_no_nearby_cuts_are_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_survival, "MOST_RAMPS", 0)
    decisions = LeaveDecisions(np.random.default_rng(3).random((400, 5)) < 0.25)
    model = profile(decisions)
    found, _ = own_survival.plan(model, CLUSTER, Wanted(1e4), decisions)
    moved = list(own_survival.near(found.cuts, range(1, 6)))
    assert moved
    for cuts in moved:
        known = own_survival.under_cuts(model, decisions, cuts)
        every = plans_with(cuts, known, CLUSTER, None)
        assert max(one.goodput_per_s for one in every) <= found.goodput_per_s * (1 + 1e-9)


def test_cuts_nearby_differ_in_one() -> None:
    assert set(own_survival.near((2, 5), [1, 2, 5, 6])) == {
        *((2,), (5,), (1, 5), (2, 6)),
        *((1, 2, 5), (2, 5, 6)),
    }
