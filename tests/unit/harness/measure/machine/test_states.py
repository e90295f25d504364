"""States of a machine, and what lies between two of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.measure.machine import snapshots as machine
from harness.measure.machine.snapshots import MachineState, disturbance, machine_state


def test_disturbance_is_what_lies_between_two_states() -> None:
    before = MachineState(100.0, 40.0, 1.0, 30.0, 0.002, 5, ("hardware power brake",))
    after = MachineState(120.0, 55.0, 2.0, 42.0, 0.001, 7, ("hardware slowdown",))
    found = disturbance(before, after, ("software thermal slowdown",))
    assert found.stolen_share == pytest.approx(1 / 20)
    assert found.others_share == pytest.approx((15 - 12) / 20)
    assert found.probe_ratio == pytest.approx(2.0)
    assert found.throttle_events == 2
    assert found.to_json()["gpu_throttled"] == [
        *("hardware power brake", "hardware slowdown", "software thermal slowdown")
    ]


def test_two_real_states_of_this_machine_fit_together() -> None:
    before = machine_state()
    sum(range(3_000_000))
    after = machine_state()
    found = disturbance(before, after)
    assert after.total_s > before.total_s
    assert after.own_s > before.own_s
    assert 0 <= found.stolen_share <= 1
    assert 0 <= found.others_share <= 1
    assert 1 <= found.probe_ratio < 1000


def test_thermal_events_are_those_of_cores_and_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two packages of two cores; each core of a package tells the package's count."""
    for core, (own, package, count) in enumerate([(1, 0, 5), (2, 0, 5), (0, 1, 7), (0, 1, 7)]):
        folder = tmp_path / f"cpu{core}"
        (folder / "thermal_throttle").mkdir(parents=True)
        (folder / "topology").mkdir()
        (folder / "thermal_throttle/core_throttle_count").write_text(f"{own}\n")
        (folder / "thermal_throttle/package_throttle_count").write_text(f"{count}\n")
        (folder / "topology/physical_package_id").write_text(f"{package}\n")
    (tmp_path / "cpufreq").mkdir()
    monkeypatch.setattr(machine, "Path", lambda name: tmp_path)
    assert machine._throttle_events() == 3 + 5 + 7
    (tmp_path / "cpu0/thermal_throttle/core_throttle_count").unlink()
    assert machine._throttle_events() == 2 + 5 + 7


def test_what_a_quota_held_back_is_a_share_of_the_time() -> None:
    """More threads may wait for it than it is worth cores."""
    before = MachineState(100.0, 40.0, 1.0, 30.0, 0.002, 5, held_s=10.0, at_s=1000.0)
    after = MachineState(120.0, 55.0, 2.0, 42.0, 0.002, 5, held_s=13.0, at_s=1060.0)
    assert disturbance(before, after).held_share == pytest.approx(3 / 60)
    assert disturbance(after, before).held_share == 0.0
    assert disturbance(before, replace(after, held_s=500.0)).held_share == 1.0
    assert disturbance(before, after).to_json()["held_share"] == pytest.approx(3 / 60)
