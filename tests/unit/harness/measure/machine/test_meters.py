from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from harness.measure.machine import meters
from harness.measure.machine.meters import Meter, available_memory, oom_kills

MIB = 2**20


def peak(meter: Meter) -> int:
    found = meter.read().peak_memory_bytes
    assert found is not None
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="the peak can be reset under Linux only")
def test_each_trial_has_its_own_peak() -> None:
    meter = Meter()
    meter.start()
    base = peak(meter)
    block = bytearray(200 * MIB)
    assert peak(meter) >= base + 190 * MIB
    del block
    assert peak(meter) >= base + 190 * MIB
    meter.start()
    assert peak(meter) < base + 100 * MIB


def test_child_processes_count_unless_excluded() -> None:
    code = "block = bytearray(120 * 2**20); print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with_child, without = Meter(), Meter(excluded=child.pid)
        assert peak(with_child) - peak(without) >= 120 * MIB
        difference = with_child.footprint().resident - without.footprint().resident
        assert difference >= 120 * MIB
        child.communicate(b"\n")


def test_available_memory_is_within_the_machine() -> None:
    assert 0 < available_memory() <= psutil.virtual_memory().total


def test_a_containers_limit_counts_and_its_page_cache_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("900\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 300\n")
    (tmp_path / "memory.events").write_text("oom 3\noom_kill 2\n")
    real = Path
    monkeypatch.setattr(
        meters, "Path", lambda name: real(str(name).replace("/sys/fs/cgroup", str(tmp_path)))
    )
    assert available_memory() == 400
    assert oom_kills() == 2
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory() > 400


def test_an_older_containers_limit_counts_alike(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.limit_in_bytes").write_text("1000\n")
    (tmp_path / "memory/memory.usage_in_bytes").write_text("900\n")
    (tmp_path / "memory/memory.stat").write_text("total_inactive_file 7\ninactive_file 300\n")
    (tmp_path / "vmstat").write_text("oom_kill_of_others 9\noom_kill 3\n")
    places = {"/sys/fs/cgroup": str(tmp_path), "/proc/vmstat": str(tmp_path / "vmstat")}
    real = Path

    def elsewhere(name: str) -> Path:
        for place, stand_in in places.items():
            name = name.replace(place, stand_in)
        return real(name)

    monkeypatch.setattr(meters, "Path", elsewhere)
    assert available_memory() == 400
    assert oom_kills() == 3
    (tmp_path / "memory/memory.usage_in_bytes").write_text("1900\n")
    assert available_memory() == 0


def test_a_process_that_is_gone_weighs_nothing() -> None:
    assert meters._status_bytes(2**22 + 1, "VmHWM") == 0
