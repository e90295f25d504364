"""Which GPUs an engine is on, and what is counted as its memory and energy."""

from __future__ import annotations

import os

import pytest

from harness.measure.machine.meters import Meter, family
from harness.measure.machine.placement import Placement
from tests.support.harness.nvml import GIB, NOBODY, FakeNvml

US, COLLEAGUE = os.getpid(), 1


def test_an_engine_is_where_its_processes_are_listed(nvml: FakeNvml) -> None:
    placement = Placement()
    nvml.put(1, US)
    nvml.used = [40 * GIB, 3 * GIB]  # a colleague has begun on the other one
    placement.settle()
    assert placement.gpus({US}) == (1,)
    nvml.put(0, US)
    assert placement.gpus({US}) == (0, 1)


@pytest.mark.parametrize(("listed", "expected"), [([], (1,)), ([NOBODY], (1,)), ([COLLEAGUE], ())])
def test_where_none_is_listed_it_is_where_memory_grew(
    nvml: FakeNvml, listed: list[int], expected: tuple[int, ...]
) -> None:
    """Unless that is a process which exists here and is not the engine's."""
    placement = Placement()
    nvml.put(1, *listed)
    nvml.used = [GIB + 1, 12 * GIB]
    placement.settle()
    assert placement.gpus({US}) == expected


def test_an_engine_on_no_gpu_is_on_none(nvml: FakeNvml) -> None:
    nvml.put(0, COLLEAGUE)
    placement = Placement()
    placement.settle()
    assert placement.gpus({US}) == ()
    assert placement.memory({US}) is None


@pytest.mark.parametrize(("listed", "expected"), [([], (0,)), ([COLLEAGUE], ())])
def test_where_nothing_tells_it_is_on_the_first(
    nvml: FakeNvml, listed: list[int], expected: tuple[int, ...]
) -> None:
    """As of devices that share the host's memory, in a container."""
    nvml.used = [None, None]
    nvml.put(0, *listed)
    placement = Placement()
    placement.settle()
    assert placement.gpus({US}) == expected


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_it_is_on_none() -> None:
    placement = Placement()
    placement.settle()
    assert placement.gpus({US}) == ()


def test_energy_is_a_difference_over_the_engines_devices(nvml: FakeNvml) -> None:
    nvml.put(0, US)
    nvml.put(1, US)
    meter = Meter()
    meter.start()
    nvml.energy = [1_030_000.0, 520_000.0]
    assert meter.read().energy_j == pytest.approx(50.0)
    nvml.put(0, COLLEAGUE)
    meter.start()
    nvml.energy = [9_030_000.0, 523_000.0]
    assert meter.read().energy_j == pytest.approx(3.0), "of the second trial, without the other's"
    nvml.energy = [9_030_000.0, None]
    assert meter.read().energy_j is None


def test_peak_memory_is_that_of_the_engines_processes(nvml: FakeNvml) -> None:
    meter = Meter()
    nvml.put(0, US, memory=3 * GIB)
    nvml.put(1, US, memory=4 * GIB)
    others = FakeNvml()
    others.put(0, COLLEAGUE, memory=50 * GIB)
    others.put(1, US, memory=None)
    nvml.processes[1] = [*nvml.told(nvml.processes[1]), *others.told(others.processes[0])]
    nvml.processes[1] += others.told(others.processes[1])
    meter.start()
    assert meter.read().peak_memory_bytes == 7 * GIB
    assert meter.footprint().device == 7 * GIB


def test_in_a_container_the_growth_since_loading_stands_in(nvml: FakeNvml) -> None:
    """The driver lists processes by the host's numbers there: none of them is ours."""
    meter = Meter()
    nvml.used = [GIB + 10 * GIB, 2 * GIB]
    nvml.put(0, NOBODY, memory=10 * GIB)
    assert meter.footprint().device == 10 * GIB
    nvml.used = [GIB - 1, 2 * GIB]  # others have freed some since: that says nothing of ours
    assert meter.footprint().device == 10 * GIB


def test_in_a_container_engines_loaded_beside_it_are_not_the_engines(nvml: FakeNvml) -> None:
    meter = Meter()
    nvml.used = [11 * GIB, 2 * GIB]
    assert meter.footprint().device == 10 * GIB
    nvml.used = [41 * GIB, 22 * GIB]  # two more are loaded
    meter.wake()
    nvml.used = [44 * GIB, 22 * GIB]  # the warm-up's
    assert meter.gpus() == (0,)
    meter.start()
    nvml.energy = [1_030_000.0, 900_000.0]
    nvml.used = [45 * GIB, 22 * GIB]  # the load's
    reading = meter.read()
    assert reading.peak_memory_bytes == 14 * GIB
    assert reading.energy_j == pytest.approx(30.0)
    nvml.used = [5 * GIB, 2 * GIB]
    meter.wake()
    meter.start()
    assert meter.read().peak_memory_bytes == 14 * GIB, "the others have gone, it has not"


def test_beside_a_gpu_the_hosts_memory_is_no_answer(nvml: FakeNvml) -> None:
    meter = Meter()
    meter.start()
    assert meter.read().peak_memory_bytes is None
    assert meter.footprint().resident > 0


def test_a_process_that_is_gone_is_its_own_family() -> None:
    assert family(NOBODY) == {NOBODY}
    assert US in family(US)
