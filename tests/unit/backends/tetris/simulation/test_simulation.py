"""The simulator against what can be reckoned by hand, against the planner, and against loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.tetris.pipeline.leaving import LeaveDecisions, drawn
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.pipeline.stragglers import Slowdown
from backends.tetris.planner import PlannedStage, StagePlan, plan
from backends.tetris.profile import Wanted, cluster_from
from backends.tetris.simulation.compare import SimulatedLoad, compare
from backends.tetris.simulation.events import LaneSimulation, Served
from backends.tetris.simulation.lanes import Layout
from backends.tetris.simulation.layouts import data_parallel, pipeline, regrouped
from backends.tetris.simulation.segments import best_segments
from tests.support.tetris.four_layers import depths, profile


def served(layout: Layout, times: StageTimes, inputs: LeaveDecisions, load: Any) -> Served:
    return LaneSimulation(layout, times, inputs, load, limit_ms=1e6).run()


@pytest.mark.parametrize(
    ("what", "answered"),
    [
        ("plain", [4, 4]),
        # layers 1 and 2 for both, 3 and 4 for the one that is left; ramps behind 1, 2 and 3
        ("shrinking batch", [3, 3 + 0.75 * 2.5]),
        ("batch rule", [5.5, 5.5]),
    ],
)
def test_a_device_alone_takes_what_its_batches_take(what: str, answered: list[float]) -> None:
    times = StageTimes(profile())
    layout = data_parallel(times, {"V100": 1}, what)
    found = served(layout, times, depths(2, 4), [0.0, 0.0])
    assert found.answered_ms == pytest.approx(answered)
    assert (found.batches, found.inputs) == (1, 2)


@pytest.mark.parametrize(
    ("what", "answered"),
    [("shrinking batch", [2.5, 2.5 + 0.75 * 2]), ("batch rule", [4.5, 4.5])],
)
def test_only_ramps_that_stand_are_paid_for(what: str, answered: list[float]) -> None:
    times = StageTimes(profile(ramps=[2]))
    layout = data_parallel(times, {"V100": 1}, what)
    found = served(layout, times, depths(2, 4), [0.0, 0.0])
    assert found.answered_ms == pytest.approx(answered)
    layout.entrance.queue.push([0], [100.0], 0.0)
    assert layout.entrance.queue.flush_ms == pytest.approx(100 - 4 - 0.5)


def test_clients_of_a_shrinking_batch_ask_again_with_their_answer() -> None:
    """The first one has its answer while the other one still runs."""
    times = StageTimes(profile())
    layout = data_parallel(times, {"V100": 1}, "shrinking batch")
    run = LaneSimulation(layout, times, depths(1, 2, 1, 1), 2, limit_ms=1e6).run()
    first, second = 1.5, 1.5 + 0.75 * 1.5
    assert run.asked_ms == pytest.approx([0, 0, first, second])
    assert run.answered_ms == pytest.approx([first, second, second + 1.5, second + 1.5])
    slow = LaneSimulation(
        data_parallel(times, {"V100": 1}, "shrinking batch"),
        times,
        depths(1, 2, 1, 1),
        2,
        limit_ms=1e6,
        slow={"V100-0": Slowdown(2.0)},
    ).run()
    assert slow.asked_ms == pytest.approx(2 * run.asked_ms)
    assert slow.answered_ms == pytest.approx(2 * run.answered_ms)


@pytest.mark.parametrize(("transfer_ms", "answered_ms"), [(0.2, 4.7), ([9, 0.6, 9], 5.1)])
def test_survivors_are_fused_over_the_cut(transfer_ms: Any, answered_ms: float) -> None:
    model = profile(transfer_ms=transfer_ms)
    times = StageTimes(model)
    cluster = cluster_from({"devices": {"V100": 3}, "price": {"V100": 1}}, "c", model)
    found = plan(model, cluster, Wanted(1e6))
    assert [(one.first, one.end, one.count) for one in found.stages] == [(0, 2, 2), (2, 4, 1)]
    run = served(pipeline(times, found), times, depths(2, 4, 4, 2), [0.0, 0.0, 0.0, 0.0])
    # both batches end at 2.5; each survivor's transfer takes half, one after the other
    assert run.answered_ms == pytest.approx([2.5, answered_ms, answered_ms, 2.5])
    assert run.batches == 3


def test_a_segment_that_is_full_runs_before_new_requests() -> None:
    times = StageTimes(profile())
    layout = regrouped(times, {"V100": 1}, (2,))
    run = served(layout, times, depths(4, 2, 4, 2, 2, 2), [0.0] * 6)
    assert run.answered_ms == pytest.approx([7, 2.5, 7, 5, 9.5, 9.5])


def test_survivors_go_on_alone_when_their_patience_ends() -> None:
    """The first batch leaves one at 2.5 ms, who may wait 4 ms: the device is free again at 7.5,
    after two batches of whom nobody goes on, and runs it then though nobody has joined it."""
    times = StageTimes(profile())
    layout = regrouped(times, {"V100": 1}, (2,), wait_ms=4)
    run = served(layout, times, depths(4, 2, 2, 2, 2, 2, 2, 2), [0.0] * 8)
    assert run.answered_ms[[0, 3, 5, 7]] == pytest.approx([9, 5, 7.5, 11.5])
    stages = (PlannedStage(0, 2, "V100", 1, 0, 1), PlannedStage(2, 4, "V100", 1, 0, 1))
    staged = pipeline(times, StagePlan(stages, 2, 0, 0, 2.0, 0), wait_ms=4)
    run = served(staged, times, depths(4, 2, 2, 2, 2, 2, 2, 2), [0.0] * 8)
    assert run.answered_ms[[0, 7]] == pytest.approx([2.5 + 0.1 + 4 + 1.5, 10])


def test_ramps_of_a_batch_that_shrinks_go_by_their_own_curve() -> None:
    times = StageTimes(profile(ramp_share={"V100": {"1": 1, "2": 1}}))
    layout = data_parallel(times, {"V100": 1}, "shrinking batch")
    found = served(layout, times, depths(2, 4), [0.0, 0.0])
    assert found.answered_ms == pytest.approx([3, 3 + 0.75 + 0.5 + 0.75])
    rule = served(data_parallel(times, {"V100": 1}, "batch rule"), times, depths(4), [0.0])
    assert rule.answered_ms == pytest.approx([0.75 * 4 + 3 * 0.5])


def test_where_nothing_is_under_way_every_device_runs_what_waits_for_it() -> None:
    times = StageTimes(profile())
    layout = regrouped(times, {"V100": 2}, (2,))
    run = served(layout, times, depths(4, 2, 4, 2), [0.0] * 4)
    assert run.answered_ms == pytest.approx([2.5 + 0.75 * 2, 2.5] * 2)


def test_who_waits_alone_is_flushed_for_its_deadline() -> None:
    times = StageTimes(profile())
    layout = data_parallel(times, {"V100": 1}, "plain")
    run = LaneSimulation(layout, times, depths(4, 4), [0.0, 50.0], limit_ms=20.0).run()
    assert run.answered_ms == pytest.approx([16 + 3, 53])  # the last one has nobody to wait for


def test_fills_of_those_who_left_are_charged() -> None:
    model = profile(fill_ms=[0.5] * 4)
    times = StageTimes(model)
    run = served(regrouped(times, {"V100": 1}, (2,)), times, depths(4, 4), [0.0, 0.0])
    assert run.answered_ms == pytest.approx([2.5 + 2 + 1] * 2)
    together = served(data_parallel(times, {"V100": 1}, "batch rule"), times, depths(2, 1), [0, 0])
    assert together.answered_ms == pytest.approx([3 + 1] * 2)


def test_what_is_outside_the_layers_is_paid_once_in_a_process_and_in_each_stage() -> None:
    told = {"batch_ms": {"V100": {"1": 2, "2": 4}}, "stage_ms": {"V100": {"2": 8}}}
    model = profile(**told)
    times = StageTimes(model)

    def answered(layout: Layout, *layers: int) -> list[float]:
        run = served(layout, times, depths(*layers), [0.0] * len(layers))
        return [float(one) for one in run.answered_ms]

    plain, shrinking, rule = (
        data_parallel(times, {"V100": 1}, what)
        for what in ("plain", "shrinking batch", "batch rule")
    )
    assert answered(plain, 4, 4) == [4 + 4] * 2
    assert answered(plain, 4) == [0.75 * 4 + 2]
    assert answered(shrinking, 2, 4) == [4 + 3, 4 + 3 + 0.75 * 2.5]
    assert answered(rule, 2, 4) == [5.5 + 4] * 2
    assert answered(regrouped(times, {"V100": 1}, (2,)), 4, 4) == [2.5 + 4 + 2] * 2
    stages = (PlannedStage(0, 2, "V100", 1, 0, 1), PlannedStage(2, 4, "V100", 1, 0, 1))
    staged = pipeline(times, StagePlan(stages, 2, 0, 0, 2.0, 0))
    moved = times.transfer_ms(2, 2)
    assert answered(staged, 4, 4) == pytest.approx([2.5 + 8 + moved + 2 + 8] * 2)


def test_a_batch_may_be_larger_than_memory() -> None:
    batch = 2**31
    model = profile(batch=batch, time_share={"V100": {"1": 0.5, str(batch): 1}})
    times = StageTimes(model)
    assert times.share("V100", batch) == 1
    assert times.share("V100", batch // 2) == pytest.approx(0.75)
    for what in ("plain", "shrinking batch", "batch rule"):
        layout = data_parallel(times, {"V100": 1}, what)
        run = LaneSimulation(layout, times, depths(4, 4), [0.0, 0.0], limit_ms=9.0).run()
        assert run.batches == 1


@pytest.mark.parametrize(("what", "ramps"), [("plain", 0), ("shrinking batch", 3)])
def test_queues_are_flushed_for_a_whole_batch_that_nobody_leaves(what: str, ramps: int) -> None:
    layout = data_parallel(StageTimes(profile()), {"V100": 1}, what)
    layout.entrance.queue.push([0], [100.0], 0.0)
    assert layout.entrance.queue.flush_ms == pytest.approx(100 - 4 - 0.5 * ramps)


def test_segments_are_those_of_the_least_work() -> None:
    assert best_segments(StageTimes(profile()), "V100", 4) == [(2,)]
    cheap = {"ramp_ms": {"V100": 0.1}}
    assert best_segments(StageTimes(replace(profile(**cheap), ramps=(3,))), "V100", 4) == [(3,)]
    assert best_segments(StageTimes(profile(survival=[1] * 5)), "V100", 4) == []


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_nothing_is_lost_or_answered_before_it_can_be(data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.floats(0.3, 1), min_size=4, max_size=4))
    model = profile(survival=[1.0, *np.cumprod(steps).tolist()])
    cluster = cluster_from(
        {"devices": {"V100": data.draw(st.integers(1, 6))}, "price": {"V100": 1}}, "c", model
    )
    times = StageTimes(model)
    found = plan(model, cluster, Wanted(1e6))
    inputs = drawn(model.survival, data.draw(st.integers(1, 60)), data.draw(st.integers(0, 9)))
    gaps = np.random.default_rng(0).exponential(data.draw(st.floats(0.1, 9)), len(inputs))
    load: Any = data.draw(st.sampled_from([1, 7, np.cumsum(gaps)]))
    limit_ms = data.draw(st.sampled_from([5.0, 20.0, 1e6]))
    for layout in (pipeline(times, found), regrouped(times, cluster.devices, (1, 3))):
        run = LaneSimulation(layout, times, inputs, load, limit_ms).run()
        layers, cuts = inputs.depths(layout.cuts), layout.cuts or ()
        assert (run.answered_ms - run.asked_ms >= 0.75 * layers - 1e-9).all()
        assert run.inputs == sum((layers > cut).sum() for cut in (0, *cuts))


@pytest.mark.parametrize("load", [SimulatedLoad(), SimulatedLoad(rate=1_500.0)])
def test_a_pipeline_serves_what_was_planned(load: SimulatedLoad) -> None:
    model = profile(batch=8, time_share={"V100": {"1": 0.9, "8": 1}})
    cluster = cluster_from({"devices": {"V100": 6}, "price": {"V100": 1}}, "c", model)
    found = plan(model, cluster, Wanted(50, rate=load.rate))
    inputs = drawn(model.survival, 20_000, 3)
    systems = {
        one.name: one for one in compare(StageTimes(model), cluster, found, inputs, load, 50)
    }
    piped = systems["pipeline"]
    assert piped.predicted_per_s == found.goodput_per_s
    assert piped.goodput_per_s == pytest.approx(found.goodput_per_s, rel=0.05)
    assert piped.requests == 20_000
    if load.rate is None:
        plain, shrinking = systems["plain"], systems["shrinking batch"]
        assert plain.goodput_per_s == pytest.approx(6 * 8 / 4e-3, rel=0.03)
        assert piped.goodput_per_s > 1.05 * max(plain.goodput_per_s, shrinking.goodput_per_s)
        assert systems["batch rule"].goodput_per_s <= shrinking.goodput_per_s * 1.01
    else:
        assert piped.clients is None
        assert piped.within_slo > 0.99


@pytest.mark.parametrize(("free", "untried"), [(200_000, False), (0, True)])
def test_pilots_choose_for_every_system_or_for_none(
    monkeypatch: pytest.MonkeyPatch, free: int, untried: bool
) -> None:
    """Where five pilots of 4,000 requests would pay and fifteen do not, no system has any."""
    monkeypatch.setattr("backends.tetris.simulation.compare.PILOT_FREE", free)
    falls: dict[str, Any] = {"survival": [1, 0.8, 0.5, 0.3, 0.3], "ramp_ms": {"V100": 0.05}}
    model = profile(batch=8, time_share={"V100": {"1": 0.9, "8": 1}}, **falls)
    cluster = cluster_from({"devices": {"V100": 6}, "price": {"V100": 1}}, "c", model)
    times, found = StageTimes(model), plan(model, cluster, Wanted(50))
    assert len(best_segments(times, "V100", 4)) > 1
    inputs = drawn(model.survival, 4_000, 3)
    systems = list(compare(times, cluster, found, inputs, SimulatedLoad(), 50))
    assert {one.untried for one in systems} == {untried}
    if untried:
        assert {one.clients for one in systems} == {2 * 6 * 8}
    given = compare(times, cluster, found, inputs, SimulatedLoad(clients=30), 50)
    assert [(one.clients, one.untried) for one in given] == 5 * [(30, False)]  # three pilots pay


def test_arrivals_are_drawn_apart_from_who_leaves() -> None:
    """Two streams of one seed run in step for some fifty draws."""
    found = []
    for seed in range(100):
        gaps = np.diff(SimulatedLoad(rate=1e3, seed=seed).arrivals(50), prepend=0.0)
        layers = drawn(np.linspace(1, 0, 40).tolist(), 50, seed).depths()
        found.append(np.corrcoef(gaps, layers)[0, 1])
    assert abs(np.mean(found)) < 0.1
    load, other = SimulatedLoad(rate=1e3), SimulatedLoad(rate=1e3, seed=1)
    assert not np.allclose(load.arrivals(9, place=1), other.arrivals(9))
    assert not np.allclose(load.arrivals(9, place=1), load.arrivals(9))


def test_copies_share_the_requests() -> None:
    model = profile()
    cluster = cluster_from({"devices": {"V100": 3}, "price": {"V100": 1}}, "c", model)
    found = plan(model, cluster, Wanted(50))
    inputs = drawn(model.survival, 8_000, 3)
    load = SimulatedLoad(clients=40)
    one = next(compare(StageTimes(model), cluster, found, inputs.first(2_000), load, 50))
    four = SimulatedLoad(clients=160)
    many = next(compare(StageTimes(model), cluster, found, inputs, four, 50, copies=4))
    assert many.requests == 8_000
    assert many.clients == 160
    assert many.goodput_per_s == pytest.approx(4 * one.goodput_per_s, rel=0.03)
    assert many.predicted_per_s == pytest.approx(4 * found.goodput_per_s)
