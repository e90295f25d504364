"""What a plan is held against: by hand, against the simulator, and against the planner."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.tetris.own_survival import under_cuts
from backends.tetris.pipeline.leaving import LeaveDecisions, drawn
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import plan
from backends.tetris.profile import Wanted, cluster_from, profile_from
from backends.tetris.simulation import segments
from backends.tetris.simulation.baselines import BASELINES, baselines, refusal
from backends.tetris.simulation.compare import SimulatedLoad, compare, summary
from backends.tetris.simulation.events import LaneSimulation
from backends.tetris.simulation.layouts import data_parallel, regrouped
from backends.tetris.simulation.segments import best_segments
from tests.support.tetris.four_layers import profile

FOREVER = Wanted(1e12)


def found(model: Any, wanted: Wanted = FOREVER, **devices: int) -> dict[str, Any]:
    price = {kind: 2.0 if kind == "V100" else 0.5 for kind in devices}
    cluster = cluster_from({"devices": devices, "price": price}, "c", model)
    return baselines(model, cluster, wanted)


def test_each_baseline_takes_what_its_batches_take() -> None:
    """Two inputs, both alive in front of layers 1 and 2; of the last two each is with a half, so
    that one is in a half and both in a quarter of all cases."""
    every = found(profile(), V100=3)
    work = {
        "plain": 4.0,
        "shrinking batch": 3 + (0.5 * 0.75 + 0.25) * (1.5 + 1),
        "batch rule": 3 + 0.75 * (1.5 + 1),
        "regrouping in place": 2.5 + 0.5 * 2,
    }
    assert {name: one.goodput_per_s for name, one in every.items()} == pytest.approx(
        {name: 3 * 2 / ms * 1e3 for name, ms in work.items()}
    )
    # the wait for a batch, one in the device, and for a second survivor in each device
    latency = {
        "plain": 4 / 3 + 4,
        "shrinking batch": work["shrinking batch"] / 3 + 5.5,
        "batch rule": work["batch rule"] / 3 + 5.5,
        "regrouping in place": 3.5 / 3 + 4.5 + 3.5 / 0.5,
    }
    assert {name: one.latency_ms for name, one in every.items()} == pytest.approx(latency)
    assert {one.cost for one in every.values()} == {6.0}


def test_what_is_outside_the_layers_and_fills_are_paid() -> None:
    told = {"batch_ms": {"V100": {"1": 1, "2": 3}}, "fill_ms": [1, 1, 1, 1]}
    every = found(profile(**told), V100=1)
    work = {name: 2e3 / one.goodput_per_s for name, one in every.items()}
    assert work == pytest.approx(
        {
            "plain": 3 + 4,
            "shrinking batch": 3 + 3 + 0.625 * 2.5 + 2 * 0.5,
            "batch rule": 3 + 3 + 0.75 * 2.5 + 2 * 0.25,
            "regrouping in place": 3 + 4,  # a cut saves a layer, and adds a ramp and a fill
        }
    )


def test_a_baseline_keeps_to_the_limits_of_the_plan() -> None:
    model = profile(
        layer_ms={"V100": [1] * 4, "K80": [3] * 4},
        ramp_ms={"V100": 0.5, "K80": 0.5},
        time_share={kind: {"1": 0.75, "2": 1} for kind in ("V100", "K80")},
    )
    free = found(model, V100=2, K80=2)["plain"]
    assert free.goodput_per_s == pytest.approx(2 * 500 + 2 * 2e3 / 12)
    assert (free.latency_ms, free.cost) == pytest.approx((2e3 / free.goodput_per_s + 12, 5))
    quick = found(model, Wanted(11), V100=2, K80=2)["plain"]
    assert (dict(quick.devices), quick.latency_ms) == ({"V100": 2}, pytest.approx(2 + 4))
    slack = found(model, Wanted(8, slack_ms=2.5), V100=2, K80=2)
    assert slack["plain"] is None  # a pair of them has 6 ms, one alone 8
    assert dict(found(model, Wanted(1e9, budget=1.5), V100=2, K80=2)["plain"].devices) == {"K80": 2}
    slow = found(model, Wanted(1e9, rate=300), V100=2, K80=2)["plain"]
    assert (dict(slow.devices), slow.goodput_per_s) == ({"K80": 2}, 300)
    least = found(model, Wanted(1e9, target=400), V100=2, K80=2)["plain"]
    assert (dict(least.devices), least.cost) == ({"V100": 1}, 2.0)


def test_a_shrinking_batch_is_not_guessed_without_the_time_of_fewer_inputs() -> None:
    told = {"time_share": None}
    every = found(profile(**told), V100=1)
    assert [name for name in BASELINES if every[name] is None] == ["shrinking batch"]
    assert all(found(profile(batch=1, **told), V100=1).values())


def test_batches_that_no_memory_holds_are_reckoned_with() -> None:
    big = profile(batch=2**31, time_share={"V100": {str(2**31): 1}})
    every = found(big, V100=1)
    assert every["shrinking batch"].goodput_per_s == pytest.approx(2**31 / 5.5e-3)


CLUSTER = {"devices": {"V100": 2}, "price": {"V100": 2.0}}


@pytest.mark.parametrize(
    ("changed", "wanted", "told"),
    [
        # stages of 2.5 and half of 2 ms: a batch every 2.5 ms at best, in place one every 1.75
        ({}, Wanted(1e6), "cannot pay: 1,000 a second predicted, 0.88 of what regrouping in place "
         "gives on these devices, 1,142.86"),
        # a survivor waits 7 ms for another one: the SLO shuts regrouping out
        ({}, Wanted(9), None),
        ({}, Wanted(1e6, target=550), "cannot pay: costs 4; regrouping in place gives 571.429 a "
         "second for 2"),
        # one device as well, which the plan has the whole model in
        ({}, Wanted(1e6, target=400), "cannot pay: 500 a second predicted, 0.88 of what regrouping "
         "in place gives at the same cost of 2, 571.429"),
        ({}, Wanted(1e6, rate=550), "cannot pay: costs 4; regrouping in place gives 550 a second "
         "for 2"),
        ({"survival": [1] * 5}, Wanted(1e6), None),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_pay_is_told_in_numbers(
    changed: dict[str, Any], wanted: Wanted, told: str | None
) -> None:
    model = profile(**changed)
    cluster = cluster_from(CLUSTER, "c", model)
    assert refusal(plan(model, cluster, wanted), baselines(model, cluster, wanted), wanted) == told


def test_nothing_is_refused_for_baselines_that_meet_nothing() -> None:
    model = profile()
    cluster = cluster_from(CLUSTER, "c", model)
    nobody = dict.fromkeys(BASELINES)
    assert refusal(plan(model, cluster, FOREVER), nobody, FOREVER) is None


@st.composite
def models(draw: st.DrawFn) -> Any:
    layers, batch = draw(st.integers(2, 4)), draw(st.sampled_from((1, 2, 5, 8)))
    survival = [1.0]
    for _ in range(layers):
        survival.append(survival[-1] * (1 - draw(st.sampled_from((0.0, 0.125, 0.5, 0.75)))))
    least = draw(st.sampled_from((0.25, 0.5, 1.0)))
    told = {
        "layers": layers,
        "batch": batch,
        "survival": survival,
        "layer_ms": {"a": [draw(st.floats(0.25, 4.0)) for _ in range(layers)]},
        "ramp_ms": {"a": draw(st.sampled_from((0.0, 0.25, 2.0)))},
        "transfer_ms": 0.0,
        "time_share": {"a": {"1": least if batch > 1 else 1.0} | {str(batch): 1.0}},
    }
    ramps: tuple[int, ...] | None = None
    if draw(st.booleans()):
        ramps = tuple(sorted(draw(st.sets(st.integers(1, layers - 1)))))
    return replace(profile_from(told, "p"), ramps=ramps)


@settings(max_examples=60, deadline=None)
@given(model=models(), devices=st.integers(1, 3))
def test_a_pipeline_without_hops_on_like_devices_is_no_better_than_regrouping(
    model: Any, devices: int
) -> None:
    """Stages wait for the slowest one, segments in turn do not; nor is a batch that stays together
    better than one that shrinks."""
    cluster = cluster_from({"devices": {"a": devices}, "price": {"a": 1}}, "c", model)
    every = baselines(model, cluster, FOREVER)
    assert all(every.values())
    rates = {name: one.goodput_per_s for name, one in every.items() if one}
    piped = plan(model, cluster, FOREVER)
    assert piped.goodput_per_s <= rates["regrouping in place"] * (1 + 1e-9)
    assert rates["plain"] <= rates["regrouping in place"] * (1 + 1e-9)
    assert rates["batch rule"] <= rates["shrinking batch"] * (1 + 1e-9)
    above = max(rates.values()) > piped.goodput_per_s * (1 + 1e-9)
    assert (refusal(piped, every, FOREVER) is not None) == above


@settings(max_examples=25, deadline=None)
@given(model=models(), devices=st.integers(1, 2))
def test_the_simulator_comes_to_the_same(model: Any, devices: int) -> None:
    """In closed loop with many clients; a finite run is off by chance and by its ends."""
    times = StageTimes(model)
    cluster = cluster_from({"devices": {"a": devices}, "price": {"a": 1}}, "c", model)
    every = baselines(model, cluster, FOREVER)
    inputs = drawn(model.survival, 4_000, 3)
    layouts = {name: data_parallel(times, {"a": devices}, name) for name in BASELINES[:3]}
    cuts = (best_segments(times, "a", 4) or [()])[-1]
    layouts["regrouping in place"] = regrouped(times, {"a": devices}, cuts)
    for name, layout in layouts.items():
        clients = 8 * model.batch * devices
        run = LaneSimulation(layout, times, inputs, clients, math.inf).run()
        simulated = summary(name, [run], math.inf, clients).goodput_per_s
        one = every[name]
        assert one is not None
        assert one.goodput_per_s == pytest.approx(simulated, rel=0.1), name


def test_regrouping_by_a_log_comes_to_what_the_simulator_does() -> None:
    """Each ramp lets go who no other one does: with all of them on nobody would be left behind the
    third, and cuts that are best by that survival are not the best under their own."""
    at = np.random.default_rng(0).integers(1, 5, 4_000)
    leaves = LeaveDecisions(at[:, None] == np.array([1, 2, 3]))
    model = profile(survival=leaves.alive().tolist(), ramp_ms={"V100": 0.7})
    cluster = cluster_from({"devices": {"V100": 2}, "price": {"V100": 1}}, "c", model)
    one = baselines(model, cluster, FOREVER, leaves)["regrouping in place"]
    assert one is not None
    plain = plan(replace(model, ramps=()), cluster, FOREVER)

    def under(cuts: Sequence[int]) -> StageTimes:
        return StageTimes(under_cuts(model, leaves, cuts))

    rows = compare(
        StageTimes(model), cluster, plain, leaves, SimulatedLoad(clients=32), math.inf, under=under
    )
    simulated = {row.name: row.goodput_per_s for row in rows}
    assert one.goodput_per_s == pytest.approx(simulated["regrouping in place"], rel=0.02)


def test_segments_by_a_log_are_the_best_of_all_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written out, for every number of segments that pays; and where they are too many to be all
    tried those that no single move makes better."""
    leaves = LeaveDecisions(np.random.default_rng(2).random((500, 7)) < 0.2)
    model = profile(
        layers=8,
        survival=leaves.alive().tolist(),
        layer_ms={"V100": [1] * 8},
        ramp_ms={"V100": 0.1},
    )
    times = StageTimes(model)

    def work(cuts: tuple[int, ...]) -> float:
        alive = under_cuts(model, leaves, cuts).survival
        spans = itertools.pairwise((0, *cuts, 8))
        return sum(alive[i] * (j - i + 0.1 * (j < 8)) for i, j in spans)

    best = [min(itertools.combinations(range(1, 8), n), key=work) for n in (1, 2, 3)]
    assert best_segments(times, "V100", 4, leaves) == best
    monkeypatch.setattr(segments, "MOST_CHOICES", 0)
    moved = best_segments(times, "V100", 4, leaves)
    assert [len(cuts) for cuts in moved] == [1, 2, 3]
    assert work(moved[0]) == work(best[0])
    assert work(moved[2]) < work(moved[1]) < work(moved[0])


@pytest.mark.parametrize("batch", [1, 3, 40])
def test_the_number_alive_is_drawn_from_all_there_may_be(batch: int) -> None:
    """A layer that costs as many milliseconds as inputs are alive costs their mean."""
    share = {str(n): n / batch for n in range(1, batch + 1)}
    model = profile(
        batch=batch,
        survival=[1, 0.7, 0.4, 0.1, 0.1],
        layer_ms={"V100": [batch] * 4},
        ramp_ms={"V100": 0},
        time_share={"V100": share},
    )
    one = found(model, V100=1)["shrinking batch"]
    mean = sum(itertools.islice(model.survival, 4))
    assert 1e3 * batch / one.goodput_per_s == pytest.approx(batch * mean)
