"""The planner's answers against every plan there is, on small random instances."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from backends.tetris import useful_stages
from backends.tetris.planner import StagePlan, plan
from backends.tetris.profile import (
    DeviceCluster,
    StageProfile,
    Wanted,
    cluster_from,
    profile_from,
)
from harness.core.errors import UserError
from tests.support.tetris.every_plan import NEAR, WrittenPlan, every_plan, good_plans, one_plan

LAX_MS = 1e6
TIMES = st.integers(1, 24).map(lambda n: n / 4)
Instance = tuple[StageProfile, DeviceCluster]


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    layers = draw(st.integers(1, 4))
    kinds = draw(st.sampled_from((("a",), ("a", "b"))))
    steps = draw(st.lists(st.sampled_from((0.0, 0.0, 0.125, 0.25, 0.5, 1.0)), max_size=layers))
    survival = [1.0]
    for step in [*steps, *[0.0] * (layers - len(steps))]:
        survival.append(survival[-1] * (1 - step))
    told: dict[str, Any] = {
        "layers": layers,
        "batch": draw(st.sampled_from((1, 4, 8))),
        "survival": survival,
        "layer_ms": {k: [draw(TIMES) for _ in range(layers)] for k in kinds},
        "ramp_ms": {k: draw(st.sampled_from((0.0, 0.25, 5.0))) for k in kinds},
        "transfer_ms": draw(st.sampled_from((0.0, 0.25, 1.0, 8.0))),
    }
    if draw(st.booleans()):
        every = st.sampled_from((0.0, 0.25, 1.0, 8.0))
        told["transfer_ms"] = [draw(every) for _ in range(layers - 1)]
    if draw(st.booleans()):
        told["fill_ms"] = {k: [draw(TIMES) / 4 for _ in range(layers)] for k in kinds}
    ramps: tuple[int, ...] | None = None
    if draw(st.booleans()):
        ramps = tuple(at for at in range(1, layers) if draw(st.booleans()))
    if draw(st.booleans()):
        some = st.sampled_from((0.0, 0.25, 1.0, 8.0))
        for key in ("batch_ms", "stage_ms", "enter_ms"):
            told[key] = {k: {str(told["batch"]): draw(some)} for k in kinds}
    profile = replace(profile_from(told, "profile"), ramps=ramps)
    devices = {k: draw(st.integers(1, 3)) for k in kinds}
    price = {k: draw(st.sampled_from((0.0, 0.5, 1.0, 3.0))) for k in kinds}
    return profile, cluster_from({"devices": devices, "price": price}, "cluster", profile)


def check_numbers(found: StagePlan, instance: Instance, rate: float | None) -> None:
    """What the plan says of itself follows from its stages, which cover the model once."""
    profile, cluster = instance
    spans = [(one.first, one.end) for one in found.stages]
    assert [spans[0][0], *(end for _, end in spans)] == [*(b for b, _ in spans), profile.layers]
    used: dict[str, int] = {}
    for one in found.stages:
        used[one.device] = used.get(one.device, 0) + one.count
    assert all(n <= cluster.devices[kind] for kind, n in used.items())
    placed = tuple((one.device, one.count) for one in found.stages)
    again = one_plan(profile, cluster, rate, spans, placed)
    told = WrittenPlan(found.goodput_per_s, found.latency_ms, found.cost)
    assert vars(told) == pytest.approx(vars(again), rel=1e-9)


wishes = st.builds(
    Wanted,
    slo_ms=st.sampled_from((LAX_MS, 4.0, 8.0, 12.0, 20.0, 40.0)),
    slack_ms=st.sampled_from((0.0, 0.0, 1.0)),
    rate=st.sampled_from((None, None, 100.0, 700.0, 3000.0)),
    budget=st.sampled_from((None, None, 1.0, 4.0)),
)


@pytest.fixture(scope="module", params=(useful_stages.FEW, 0), ids=("plain", "priced"))
def few(request: pytest.FixtureRequest) -> Iterator[None]:
    """These instances are too small for prices of devices, unless they are made to take them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(useful_stages, "FEW", request.param)
        yield


@pytest.mark.usefixtures("few")
@settings(max_examples=250, deadline=None)
@given(instances(), wishes)
def test_the_highest_goodput_then_the_lowest_cost(instance: Instance, wanted: Wanted) -> None:
    best = good_plans(*instance, wanted)
    if not best:
        check_refusal(instance, wanted)
        return
    found = plan(*instance, wanted)
    check_numbers(found, instance, wanted.rate)
    most = max(one.goodput_per_s for one in best)
    assert found.goodput_per_s == pytest.approx(most, rel=1e-9)
    best = [one for one in best if one.goodput_per_s >= most * (1 - NEAR)]
    cost = min(one.cost for one in best)
    assert found.cost == pytest.approx(cost)
    latency = min(one.latency_ms for one in best if one.cost <= cost + NEAR)
    assert found.latency_ms == pytest.approx(latency, rel=1e-9)


@pytest.mark.usefixtures("few")
@settings(max_examples=250, deadline=None)
@given(instances(), wishes, st.sampled_from((0.3, 0.8, 1.0, 1.2)), st.integers(0, 10**6))
def test_the_lowest_cost_then_the_highest_goodput(
    instance: Instance, wanted: Wanted, share: float, place: int
) -> None:
    every = list(every_plan(*instance, wanted.rate))
    target = share * every[place % len(every)].goodput_per_s
    assume(wanted.rate is None or target <= wanted.rate)
    wanted = replace(wanted, target=target)
    best = good_plans(*instance, wanted)
    if not best:
        check_refusal(instance, wanted)
        return
    found = plan(*instance, wanted)
    check_numbers(found, instance, wanted.rate)
    cost = min(one.cost for one in best)
    assert found.cost == pytest.approx(cost)
    most = max(one.goodput_per_s for one in best if one.cost <= cost + NEAR)
    assert found.goodput_per_s == pytest.approx(most, rel=1e-9)


def check_refusal(instance: Instance, wanted: Wanted) -> None:
    """The SLO that the refusal names is the smallest one that a plan meets."""
    with pytest.raises(UserError) as told:
        plan(*instance, wanted)
    reachable = good_plans(*instance, replace(wanted, slo_ms=LAX_MS))
    if not reachable:
        assert str(told.value).startswith(("--budget", "--target"))
        return
    named = re.search(r"smallest SLO that a plan meets is ([\d.]+) ms", str(told.value))
    assert named is not None
    least = min(one.latency_ms for one in reachable) + wanted.slack_ms
    assert least <= float(named[1]) * (1 + NEAR) <= least * (1 + 1e-4)
    named_slo = replace(wanted, slo_ms=float(named[1]))
    check_numbers(plan(*instance, named_slo), instance, wanted.rate)
    with pytest.raises(UserError):
        plan(*instance, replace(wanted, slo_ms=float(named[1]) * (1 - 1e-4)))


FOUR = {
    "layers": 4,
    "batch": 8,
    "survival": [1, 1, 0.5, 0.5, 0.25],
    "layer_ms": {"gpu": [1, 1, 1, 1]},
    "ramp_ms": {"gpu": 0},
    "transfer_ms": 0.5,
}


def planned(devices: int, wanted: Wanted, **changed: Any) -> StagePlan:
    profile = profile_from(FOUR | changed, "profile")
    told = {"devices": {"gpu": devices}, "price": {"gpu": 2.0}}
    return plan(profile, cluster_from(told, "cluster", profile), wanted)


def test_a_plan_by_hand() -> None:
    """Three devices: layers 0 and 1 for all take 2 ms, so 1 ms on two; layers 2 and 3 for half of a
    batch take 1 ms on the third. A batch a millisecond: it waits 1 ms, runs 2 ms, crosses in 0.5
    ms, waits 2 ms for a second half and runs 2 ms."""
    found = planned(3, Wanted(100))
    assert [(one.first, one.end, one.count) for one in found.stages] == [(0, 2, 2), (2, 4, 1)]
    assert [(one.cycle_ms, one.alive) for one in found.stages] == [(1, 1), (1, 0.5)]
    told = (found.goodput_per_s, found.latency_ms, found.cost, found.cycle_ms)
    assert told == pytest.approx((8000, 7.5, 6, 1))


def test_the_filling_of_keys_and_values_is_work() -> None:
    """Half a batch has left before layer 2: its fills take half of 2 x 1 ms in each cycle."""
    found = planned(3, Wanted(100), fill_ms=[1, 1, 1, 1])
    assert max(one.cycle_ms for one in found.stages) == pytest.approx(4 / 3)
    one_stage = planned(1, Wanted(100), fill_ms=[1, 1, 1, 1])
    assert one_stage.cycle_ms == pytest.approx(4)


def test_what_stages_cost_outside_their_layers_keeps_the_model_whole() -> None:
    told = {"batch_ms": {"gpu": {"8": 1}}, "stage_ms": {"gpu": {"8": 1}}}
    assert planned(3, Wanted(100), **told).cycle_ms == pytest.approx((2 + 1) / 2)
    told["stage_ms"] = {"gpu": {"1": 0, "8": 3}}
    found = planned(3, Wanted(100), **told)
    assert [(one.first, one.end, one.count) for one in found.stages] == [(0, 4, 3)]
    assert found.cycle_ms == pytest.approx((4 + 1) / 3)


def test_a_transfer_above_the_stage_time_keeps_the_model_whole() -> None:
    """Half of a batch crosses: of 2.6 ms 1.3, within the cycle of 4 ms on three devices."""
    assert len(planned(3, Wanted(100), transfer_ms=2.8).stages) == 1
    assert len(planned(3, Wanted(100), transfer_ms=2.6).stages) == 2


def test_who_has_left_crosses_as_well_where_keys_and_values_are_filled() -> None:
    behind, before = ([0, 0, 0, 0.01], [0.01, 0.01, 0, 0])
    assert len(planned(3, Wanted(100), transfer_ms=2.6, fill_ms=behind).stages) == 1
    assert len(planned(3, Wanted(100), transfer_ms=2.6, fill_ms=before).stages) == 2
    assert len(planned(3, Wanted(100), transfer_ms=1.3, fill_ms=behind).stages) == 2


def test_the_cut_is_where_the_states_are_small() -> None:
    """Seven devices, a batch each 0.5 ms: cut before layer 2 it takes four for 2 ms and two for
    half of 2 ms. Where half of that cut's transfer takes 0.6 ms, it takes six for 3 ms and one for
    half of 1 ms: a batch waits 0.5 ms, runs 3, crosses in 0.25, waits 1 for a second half and runs
    1."""
    alike = planned(7, Wanted(100), transfer_ms=0.25)
    assert [(one.first, one.end, one.count) for one in alike.stages] == [(0, 2, 4), (2, 4, 2)]
    unlike = planned(7, Wanted(100), transfer_ms=[9, 1.2, 0.25])
    assert [(one.first, one.end, one.count) for one in unlike.stages] == [(0, 3, 6), (3, 4, 1)]
    assert (unlike.cycle_ms, unlike.latency_ms) == pytest.approx((0.5, 5.75))


def test_a_transfer_above_the_arrivals_keeps_the_model_whole_whatever_it_costs() -> None:
    """A batch every 1.35 ms, of which a tenth crosses: two stages need a device each, the whole
    model's 4 ms three."""
    few = [1, 0.1, 0.1, 0.1, 0.1]
    for transfer_ms, cost in ((13, 4), (14, 6)):
        found = planned(3, Wanted(100, rate=5925), transfer_ms=transfer_ms, survival=few)
        assert found.cost == cost
        assert found.goodput_per_s == pytest.approx(5925)


def test_requests_that_come_slowly_need_fewer_devices() -> None:
    """2,000 a second: a batch in 4 ms, which one device keeps up with."""
    found = planned(3, Wanted(100, rate=2000))
    assert (found.goodput_per_s, found.cost, found.latency_ms) == pytest.approx((2000, 2, 8))


def test_a_model_of_many_layers_and_devices_keeps_to_every_limit() -> None:
    """Too large to write out: the answers of neighbouring limits hold one another."""
    layers = 24
    told = FOUR | {
        "layers": layers,
        "survival": [1 - 0.03 * n for n in range(layers + 1)],
        "layer_ms": {"new": [1.0] * layers, "old": [4.1] * layers},
        "ramp_ms": {"new": 0.1, "old": 0.3},
    }
    profile = profile_from(told, "profile")
    cluster = cluster_from(
        {"devices": {"new": 4, "old": 6}, "price": {"new": 3, "old": 0.5}}, "cluster", profile
    )
    goodputs = []
    for slo_ms in (30, 40, 60, 80, 1000):
        found = plan(profile, cluster, Wanted(slo_ms))
        check_numbers(found, (profile, cluster), None)
        assert found.latency_ms <= slo_ms
        goodputs.append(found.goodput_per_s)
        again = plan(profile, cluster, Wanted(slo_ms, target=found.goodput_per_s))
        assert again.goodput_per_s == pytest.approx(found.goodput_per_s)
        assert again.cost == pytest.approx(found.cost)
    assert goodputs == sorted(goodputs)
    assert goodputs[0] < goodputs[-1]


def test_a_cluster_too_large_to_plan_is_refused() -> None:
    with pytest.raises(UserError, match="60,000 devices of 1 kinds for 4 layers: too many"):
        planned(60_000, Wanted(100))
