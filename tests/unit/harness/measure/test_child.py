"""What happens to one trial in the process that measures it, step by step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection
from dataclasses import replace
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UnavailableError, UserError
from harness.core.nouns import Load
from harness.measure import child
from harness.measure.load_loop import TrialTimeout
from harness.measure.machine import gpu
from harness.measure.machine import snapshots as machine
from harness.measure.machine.snapshots import MachineState
from harness.measure.messages import NoResult
from tests.support.harness.diary import QUIET, DiarySession, FakeMeter, run
from tests.support.harness.virtual_time import VirtualTime, install

ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    """A busy machine must not make the harness late here."""
    return install(monkeypatch)


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> list[MachineState]:
    """The machine before and after the load, for a test to change."""
    two = [QUIET, replace(QUIET, total_s=110.0, busy_s=45.0, own_s=35.0)]

    def state(on: Any, *, load_begins: bool = False) -> MachineState:
        return two[0] if load_begins else two[1]

    monkeypatch.setattr(machine, "machine_state", state)
    return two


@pytest.mark.usefixtures("states")
def test_the_engine_is_reset_warmed_up_and_reset_again_before_it_is_measured() -> None:
    """At the trial's concurrency, and outside what the meter reads."""
    session = DiarySession()
    run(session, requests=3)
    assert session.log == [
        *("[preparing]", "requests", "[warm-up]", "reset", "w0", "w1", "2 at once", "reset"),
        *("[load]", "meter", "r0", "r1", "2 at once", "r2", "1 at once", "reading"),
        *("[scoring]", "finish"),
    ]


@pytest.mark.usefixtures("states")
@pytest.mark.parametrize(
    ("load", "together"),
    [
        (Load("closed", concurrency=1), [1, 1, 1]),
        (Load("closed", concurrency=2), [2, 1]),
        (Load("closed", concurrency=64), [3]),
        (Load("poisson", rate=1.0), [3]),
    ],
)
def test_the_warm_up_runs_as_many_at_once_as_the_load_will(load: Load, together: list[int]) -> None:
    session = DiarySession(warm_up=3)
    run(session, load=load)
    warm_up = session.log[session.log.index("[warm-up]") : session.log.index("[load]")]
    assert [w for w in warm_up if w.endswith("once")] == [f"{n} at once" for n in together]


@pytest.mark.usefixtures("states")
def test_an_engine_without_a_warm_up_starts_cold_all_the_same() -> None:
    session = DiarySession(warm_up=0)
    run(session)
    assert session.log[2:5] == ["[warm-up]", "reset", "[load]"]


@pytest.mark.usefixtures("states")
def test_what_was_measured_is_stored() -> None:
    record = run(DiarySession())
    assert (record.key, record.setup_s, record.status) == ("a-key", 1.5, "ok")
    assert (record.peak_memory_bytes, record.energy_j) == (7_000_000, 12.5)
    assert [g.request_id for g in record.generations] == [f"r{i}" for i in range(6)]
    assert record.texts["r5"] == "text"
    assert record.scores["r5"] == {"exact_match": 1.0}
    assert record.validity.valid
    assert record.environment["cpu"] == "x"


@pytest.mark.usefixtures("states")
def test_where_workers_ran_is_stored_as_it_was_behind_the_load() -> None:
    session = DiarySession()
    assert "workers" not in run(session).environment
    session = DiarySession()
    told = [{"stage": 1, "device": "x"}]
    places = {"places": lambda _: told if session.log[-1] != "[warm-up]" else []}
    session.backend.__class__ = type("Piped", (type(session.backend),), places)
    assert run(session).environment["workers"] == told


@pytest.mark.usefixtures("states")
def test_a_servers_energy_is_not_its_clients() -> None:
    record = run(DiarySession(capabilities=frozenset({"server", "cold-reset"})))
    assert (record.peak_memory_bytes, record.energy_j) == (None, None)
    assert record.validity.reasons[0].startswith("cache-unknown: "), "its prompts are all the same"


def test_what_disturbed_the_load_is_judged_and_stored(states: list[MachineState]) -> None:
    states[1] = replace(states[1], steal_s=3.0, throttle_events=7)
    record = run(DiarySession())
    assert not record.validity.valid
    slugs = [reason.partition(":")[0] for reason in record.validity.reasons]
    assert slugs == ["clocks-throttled", "machine-noisy", "too-few-samples"]
    found = record.environment["disturbance"]
    assert (found["stolen_share"], found["throttle_events"]) == (pytest.approx(0.2), 2)


@pytest.mark.usefixtures("states")
def test_a_gpu_slowed_down_during_the_load_makes_the_trial_invalid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is back at its clocks when the load is over."""
    monkeypatch.setattr(gpu, "devices", lambda: ("a device",))
    monkeypatch.setattr(machine, "WATCH_S", 0.001)
    looked, phases = threading.Event(), list[str]()

    def throttled(on: Collection[int]) -> tuple[str, ...]:
        assert [*on] == [0]
        if phases[-1:] != ["load"]:
            return ()
        looked.set()
        return ("hardware slowdown",)

    def work() -> None:  # the first step is the warm-up's
        phases.append("load" if phases else "warm-up")
        if phases[-1] == "load":
            assert looked.wait(60)
            phases.append("over")

    monkeypatch.setattr(gpu, "throttled", throttled)
    for name in ("holders", "computing"):
        monkeypatch.setattr(gpu, name, lambda *_: QUIET.own | {1})
    monkeypatch.setattr(gpu, "busy_share", lambda on: 0.75)
    record = run(DiarySession(work=work), requests=2)
    assert not record.validity.valid
    assert record.validity.reasons[0] == "clocks-throttled: GPU: hardware slowdown"
    found = record.environment["disturbance"]
    assert (found["gpu_others"], found["gpu_busy"]) == (1, 0.75)
    assert found["gpu_throttled"] == ["hardware slowdown"]


@pytest.mark.usefixtures("states")
@pytest.mark.parametrize(("capabilities", "watched"), [((), (0,)), (("server",), None)])
def test_only_the_engines_gpus_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, capabilities: tuple[str, ...], watched: tuple[int, ...] | None
) -> None:
    """Of a server nobody knows which: all are."""
    asked: list[Any] = []
    state = machine.machine_state

    def noted(on: Any, *, load_begins: bool = False) -> MachineState:
        asked.append(on)
        return state(on, load_begins=load_begins)

    monkeypatch.setattr(machine, "machine_state", noted)
    monkeypatch.setattr(FakeMeter, "gpus", lambda meter: (0,))
    watch = machine.GpuWatch

    def watching(on: Any) -> machine.GpuWatch:
        asked.append(on)
        return watch(())

    monkeypatch.setattr(machine, "GpuWatch", watching)
    run(DiarySession(capabilities=frozenset(capabilities)))
    assert asked == [watched] * 3


def test_the_guard_is_not_the_engines_and_no_child_inherits_the_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = Pipe()
    descriptor = os.dup(theirs.fileno())
    os.set_inheritable(descriptor, True)  # as it must be to reach a child
    served: list[tuple[bool, Any]] = []

    def serve(channel: Any, meter: Any) -> None:
        served.append((os.get_inheritable(channel.fileno()), meter))

    monkeypatch.setenv("CUDA_DEVICE_ORDER", "")
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    monkeypatch.setattr(child, "die_with", lambda parent: None)
    monkeypatch.setattr(child, "_fork_guard", lambda lifeline, channel: 4711)
    monkeypatch.setattr(child, "Meter", lambda excluded: f"without {excluded}")
    monkeypatch.setattr(child, "serve", serve)
    child.main(descriptor, -1, 0)
    assert served == [(False, "without 4711")]
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    ours.close()
    theirs.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part is Linux's")
def test_the_kernel_kills_an_engine_whose_sweep_is_gone() -> None:
    """Asked of a process that has made its vow: which signal it gets when its parent dies."""
    code = (
        "import ctypes, os; from harness.measure import child; child.die_with(os.getppid()); "
        "told = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(told)); print(told.value)"
    )
    vow = [sys.executable, "-c", code]
    done = subprocess.run(vow, capture_output=True, text=True, cwd=ROOT, check=True)
    assert int(done.stdout) == signal.SIGKILL
    orphan = [sys.executable, "-c", "from harness.measure import child; child.die_with(1)"]
    assert subprocess.run(orphan, cwd=ROOT, check=False).returncode == 1


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (UserError("no such row"), NoResult("failed", "no such row", by_user=True)),
        (UnavailableError("x", reached=True), NoResult("failed", "x", passing=True)),
        (UnavailableError("x", reached=False), NoResult("failed", "x", True, passing=True)),
        (ValueError("two\n lines"), NoResult("failed", "ValueError: two lines")),
        (MemoryError(), NoResult("out_of_memory", "MemoryError: ")),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory"),
            NoResult("out_of_memory", "RuntimeError: DefaultCPUAllocator: can't allocate memory"),
        ),
        (
            OSError("Cannot allocate memory"),
            NoResult("out_of_memory", "OSError: Cannot allocate memory"),
        ),
        (
            RuntimeError("CUDA Out Of Memory"),
            NoResult("out_of_memory", "RuntimeError: CUDA Out Of Memory"),
        ),
        (
            TrialTimeout(2.0, []),
            NoResult("timeout", "warm-up: the load was not over within its time limit of 2 s"),
        ),
    ],
)
def test_an_error_becomes_one_line_and_its_kind(error: Exception, problem: NoResult) -> None:
    assert child._problem(error) == problem


def test_an_error_without_words_says_where_it_was_raised() -> None:
    try:
        raise AssertionError
    except AssertionError as error:
        found = child._problem(error).error
    assert found.startswith("AssertionError: in test_child.py, line ")
    assert found.endswith(": raise AssertionError")


@pytest.mark.usefixtures("states")
def test_remarks_stand_with_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_warm_up", lambda *_: ["not-warmed-up: so it is"])
    reasons = run(DiarySession(), max_new_tokens=3).validity.reasons
    assert reasons[-2:] == ("not-warmed-up: so it is", "lengths-cut: so many")
