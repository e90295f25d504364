"""Regrouping in place where kinds of device are cut each for itself."""

from __future__ import annotations

import math
from typing import Any

import pytest

from backends.tetris.pipeline.leaving import drawn
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import plan
from backends.tetris.profile import DeviceCluster, StageProfile, Wanted, cluster_from
from backends.tetris.simulation import baselines as closed_forms
from backends.tetris.simulation.baselines import REGROUPING, BaselinePlan, baselines, refusal
from backends.tetris.simulation.compare import SimulatedLoad, SystemRuns
from backends.tetris.simulation.events import LaneSimulation
from backends.tetris.simulation.layouts import regrouped_by_kind
from tests.support.tetris.four_layers import depths, profile

KINDS = ("V100", "K80")


def documented() -> StageProfile:
    """The first example of docs/tetris.md, with the time of fewer inputs."""
    return profile(
        layers=6,
        batch=8,
        survival=[1.0, 1.0, 0.8, 0.6, 0.45, 0.35, 0.3],
        layer_ms={"V100": [1] * 6, "K80": [4] * 6},
        ramp_ms={"V100": 0.1, "K80": 0.3},
        transfer_ms=0.4,
        time_share={kind: {"1": 0.5, "8": 1} for kind in KINDS},
    )


def devices(model: StageProfile, **counts: int) -> DeviceCluster:
    return cluster_from({"devices": counts, "price": dict.fromkeys(counts, 1)}, "c", model)


def regrouping(model: StageProfile, cluster: DeviceCluster, wanted: Wanted) -> BaselinePlan:
    found = baselines(model, cluster, wanted)[REGROUPING]
    assert found is not None
    return found


def test_each_kind_has_the_cuts_that_are_best_there() -> None:
    """A K80 that waits for survivors misses the SLO, one without a cut meets it; V100 are cut."""
    model, wanted = documented(), Wanted(40)
    cluster = devices(model, V100=2, K80=4)
    found = regrouping(model, cluster, wanted)
    cut = sum(share * ms for share, ms in ((1, 2.1), (0.8, 1.1), (0.6, 1.1), (0.45, 2)))
    most = 8e3 * (2 / cut + 4 / 24)
    filling = cut * (1 / 0.8 + 1 / 0.6 + 1 / 0.45)
    assert found.goodput_per_s == pytest.approx(most)
    assert found.latency_ms == pytest.approx(8e3 / most + max(24, 6.3 + filling))
    told = refusal(plan(model, cluster, wanted), {REGROUPING: found}, wanted)
    assert told is not None
    assert told.startswith("cannot pay: 4,819.28 a second predicted, 0.99 of what regrouping")


def test_the_simulator_cuts_each_kind_for_itself_as_well() -> None:
    model = documented()
    cluster = devices(model, V100=2, K80=4)
    inputs = drawn(model.survival, 10_000, 0)
    runs = SystemRuns(StageTimes(model), cluster.devices, inputs, SimulatedLoad(), 40)
    expected = regrouping(model, cluster, Wanted(40)).goodput_per_s
    assert runs.baseline(REGROUPING).goodput_per_s == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("slo_ms", [25, 30, 40, 60, 90, 150, 1e6])
def test_where_kinds_are_many_fewer_ways_are_tried_and_none_is_missed(
    monkeypatch: pytest.MonkeyPatch, slo_ms: float
) -> None:
    model = documented()
    cluster, wanted = devices(model, V100=2, K80=3), Wanted(slo_ms)
    every = regrouping(model, cluster, wanted)
    monkeypatch.setattr(closed_forms, "MOST_MIXES", 1)
    assert regrouping(model, cluster, wanted) == every


def test_who_enters_is_asked_at_the_ramps_of_the_device_that_takes_him() -> None:
    """One kind lets go who is sure behind layer 1, the other one behind layer 3. Who stays goes
    on once nobody else can come."""
    told: dict[str, Any] = {
        "layer_ms": {"V100": [1] * 4, "K80": [10] * 4},
        "ramp_ms": {"V100": 0.5, "K80": 0.5},
        "time_share": {kind: {"2": 1} for kind in KINDS},
    }
    times = dict.fromkeys(KINDS, StageTimes(profile(**told)))
    count = {"K80": 1, "V100": 1}
    layout = regrouped_by_kind(times, count, {"V100": (1,), "K80": (3,)})
    arrivals, everybody = [0.0] * 4, depths(1, 4, 2, 4)
    run = LaneSimulation(layout, times["V100"], everybody, arrivals, math.inf).run()
    assert run.answered_ms == pytest.approx([1.5, 30.5 + 3, 30.5, 30.5 + 10])
    assert (run.batches, run.inputs) == (4, 6)
