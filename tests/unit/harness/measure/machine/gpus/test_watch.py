"""What is seen of the engine's GPUs during a load, and of nobody else's."""

from __future__ import annotations

import threading

import pytest

from harness.measure.machine import snapshots as machine
from harness.measure.machine.snapshots import GpuWatch, disturbance, machine_state
from tests.support.harness.nvml import NOBODY, FakeNvml
from tests.support.harness.sweeping import wait_until

OURS, NEIGHBOUR, NOTEBOOK = 4711, 1, 2


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gpu watch"]


def test_heat_between_two_states_is_told_whatever_the_clocks_are_then(nvml: FakeNvml) -> None:
    nvml.violations = [7_000_000_000, 0]
    before = machine_state()
    assert disturbance(before, machine_state()).gpu_throttled == ()
    nvml.violations = [7_250_000_000, 0]
    found = disturbance(before, machine_state(), ("hardware power brake",))
    assert found.gpu_throttled == ("hardware power brake", "thermal slowdown for 0.25 s")


def test_a_gpu_slowed_down_during_the_load_only_is_seen(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "WATCH_S", 0.001)
    with GpuWatch() as watch:
        nvml.reasons = [0x04, 0x80]  # the power cap, and another device's power brake
        assert wait_until(lambda: bool(watch.throttled), 30)
        nvml.reasons = [0x01, 0x01]
    assert watch.throttled == ("hardware power brake",)
    assert not watchers()


def test_a_load_shorter_than_the_watchs_turn_is_looked_at_when_it_ends(nvml: FakeNvml) -> None:
    with GpuWatch() as watch:
        nvml.reasons = [0, 0x40]
    assert watch.throttled == ("hardware thermal slowdown",)
    with pytest.raises(RuntimeError), GpuWatch():
        raise RuntimeError
    assert not watchers()


def test_a_colleagues_gpu_disturbs_nothing(nvml: FakeNvml) -> None:
    """It is hot and at work for others, while ours is cool and idle."""
    before = machine_state((0,))
    with GpuWatch((0,)) as watch:
        nvml.put(0, OURS)
        nvml.put(1, NEIGHBOUR)
        nvml.computed = [{OURS: 90}, {NEIGHBOUR: 90}]
        nvml.reasons, nvml.violations, nvml.busy = [0, 0x40], [0, 9_000_000_000], [0, 100]
    assert (watch.throttled, watch.busy, watch.others({OURS})) == ((), 0.0, 0)
    after = machine_state((0,))
    assert disturbance(before, after, watch.throttled).gpu_throttled == ()
    assert disturbance(before, machine_state()).gpu_throttled != ()


@pytest.mark.parametrize(
    ("busy", "share"), [([0, 90], 0.9), ([None, 35], 0.35), ([None, None], 0.0)]
)
def test_how_long_the_busiest_gpu_computed_is_seen(
    nvml: FakeNvml, busy: list[int | None], share: float
) -> None:
    with GpuWatch() as watch:
        nvml.busy = busy
    assert watch.busy == share
    state = machine_state()
    assert disturbance(state, state, gpu_busy=watch.busy).to_json()["gpu_busy"] == share


@pytest.mark.parametrize(
    ("listed", "computed", "others"),
    [
        ([OURS], {OURS: 90}, 0),
        ([OURS, NEIGHBOUR], {OURS: 90, NEIGHBOUR: 30}, 1),
        ([OURS, NOTEBOOK], {OURS: 90, NOTEBOOK: 0}, 0),
        ([OURS, NEIGHBOUR], {}, 0),
        ([OURS, NEIGHBOUR], None, 1),
        ([OURS], {NEIGHBOUR: 5}, 0),
        ([NOBODY], {NOBODY: 90}, None),
        ([], {}, None),
    ],
    ids=[
        *("alone", "beside another", "which idles", "no samples", "not told", "graphics"),
        *("by the host's numbers", "not listed"),
    ],
)
def test_who_else_computes_on_the_gpu_is_seen(
    nvml: FakeNvml, listed: list[int], computed: dict[int, int] | None, others: int | None
) -> None:
    """In a container the driver may list processes by the host's numbers: nobody knows then."""
    with GpuWatch((1,)) as watch:
        nvml.put(1, *listed)
        nvml.computed[1] = computed
    assert watch.others({OURS}) == others


def test_an_engine_on_no_gpu_has_no_neighbours_there(nvml: FakeNvml) -> None:
    nvml.put(0, NEIGHBOUR)
    with GpuWatch(()) as watch:
        assert not watchers()
    assert (watch.others({OURS}), watch.busy) == (0, 0.0)


def test_a_neighbour_that_is_seen_counts_whatever_is_not(nvml: FakeNvml) -> None:
    with GpuWatch((0, 1)) as watch:
        nvml.put(0, OURS, NEIGHBOUR)
        nvml.computed[0] = {NEIGHBOUR: 50}
    assert watch.others({OURS}) == 1


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_nobody_watches() -> None:
    with GpuWatch() as watch:
        assert not watchers()
    assert watch.throttled == ()
    assert watch.busy == 0
    assert watch.others({OURS}) == 0
