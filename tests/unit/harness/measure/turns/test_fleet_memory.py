"""Which engines stay loaded side by side, from what they occupy and what is free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from harness.core.nouns import BackendInfo, Model
from harness.measure.engine_process import EngineProcess
from harness.measure.fleet import Fleet, Stay
from harness.measure.machine import gpu
from harness.measure.machine.meters import Footprint
from harness.measure.machine.placement import Placement
from harness.measure.messages import NoResult, Ready, TrialJob
from harness.measure.sweep import run_sweep
from tests.support.harness.sessions import MemoryStore, make_trial, open_session
from tests.support.harness.sweeping import opened, room_for, sweep


class Idle:
    """An engine that only notes its end."""

    def __init__(self, name: str, ended: list[str]) -> None:
        self.name, self.ended = name, ended

    def dismiss(self) -> None:
        self.ended.append(f"{self.name} dismissed")

    def close(self) -> None:
        self.ended.append(f"{self.name} closed")

    def kill(self) -> None:
        self.ended.append(f"{self.name} killed")


def fleet_of(names: str) -> tuple[Fleet, list[str]]:
    """A fleet of idle engines, and how they ended."""
    fleet, ended = Fleet(open_session, None), list[str]()
    fleet._alive = {name: cast(EngineProcess, Idle(name, ended)) for name in names}
    return fleet, ended


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine of 1,000 bytes, and what is free on it and on its GPU."""
    now: dict[str, Any] = {"memory": 1000, "device": None}
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=1000))
    monkeypatch.setattr("harness.measure.fleet.available_memory", lambda: now["memory"])
    monkeypatch.setattr(gpu, "memory_free", lambda on: now["device"])
    return now


@pytest.mark.parametrize(
    ("engine", "enough"),
    [
        ("small", 100 + 1.2 * 100),
        ("large", 100 + 1.2 * 300),
        ("never loaded", 100 + 1.2 * 300),
    ],
)
def test_an_engine_needs_a_fifth_more_than_it_had_and_leaves_a_tenth(
    free: dict[str, Any], engine: str, enough: float
) -> None:
    """One that was never loaded is taken to be as large as the largest."""
    fleet, _ = fleet_of("ab")
    fleet._footprints = {"small": Footprint(100), "large": Footprint(300)}
    free["memory"] = enough
    assert fleet._fits(engine)
    free["memory"] = enough - 1
    assert not fleet._fits(engine)


@pytest.mark.parametrize(("engine", "enough"), [("small", 120), ("large", 360), ("new", 360)])
def test_on_a_gpu_the_devices_memory_decides_too(
    free: dict[str, Any], engine: str, enough: int
) -> None:
    fleet, _ = fleet_of("ab")
    fleet._footprints = {"small": Footprint(1, 100), "large": Footprint(1, 300)}
    free["device"] = enough
    assert fleet._fits(engine)
    free["device"] = enough - 1
    assert not fleet._fits(engine)


@pytest.mark.parametrize(
    ("engine", "asked", "enough"),
    [
        ("on one", (3,), 1.2 * 100),
        ("on two", (1, 2), 1.2 * 300 / 2),
        ("on none", (1, 2), 0),
        ("new", (1, 2), 1.2 * 300 / 2),
    ],
)
def test_only_the_engines_devices_need_the_room(
    free: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    asked: tuple[int, ...],
    enough: float,
) -> None:
    """A colleague may have filled another one. One never loaded is spread like the widest."""
    fleet, _ = fleet_of("ab")
    fleet._footprints = {
        "on one": Footprint(1, 100),
        "on two": Footprint(1, 300),
        "on none": Footprint(1),
    }
    seen: list[Any] = []

    def told(on: Any) -> Any:
        seen.append(on)
        return free["device"]

    monkeypatch.setattr(gpu, "memory_free", told)
    fleet._gpus = {"on one": (3,), "on two": (1, 2), "on none": ()}
    free["device"] = enough
    assert fleet._fits(engine)
    free["device"] = enough - 1
    assert not fleet._fits(engine)
    assert seen == [asked, asked]


def test_before_anything_was_on_a_gpu_the_first_one_counts(
    free: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, _ = fleet_of("a")
    fleet._footprints = {"a": Footprint(1)}
    seen: list[Any] = []
    monkeypatch.setattr(gpu, "memory_free", lambda on: seen.append(on))
    assert fleet._fits("new")
    fleet._gpus = {"a": ()}
    assert fleet._fits("new")
    assert seen == [(0,), (0,)]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [(0, 300), (250, 300), (50, 100), (400, 300 + 2 * 150), (10_000, 300 + 2 * 9_750)],
)
def test_an_engine_of_another_model_is_larger_or_smaller_by_its_weights(
    free: dict[str, Any], weights: int, expected: int
) -> None:
    """A model of 250 bytes took 300, whatever took 90 held none; 0: nobody knows."""
    fleet, _ = fleet_of("ab")
    fleet._weights = {"seen": 250, "server": 0, "new": weights}
    fleet._footprints = {"seen": Footprint(300)}
    assert fleet._expected("new") == Footprint(expected)
    fleet._footprints = {"seen": Footprint(90, 300)}
    assert fleet._expected("new") == Footprint(90, expected), "on a device"
    free["memory"], free["device"] = 1000, 1.2 * expected - 1
    assert not fleet._fits("new")


def test_a_sweep_asks_for_the_weights_of_every_engine_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fits = Fleet._fits
    asked: list[dict[str, int]] = []

    def seen(fleet: Fleet, key: str) -> bool:
        asked.append(dict(fleet._weights))
        return fits(fleet, key)

    monkeypatch.setattr(Fleet, "_fits", seen)
    small, large = make_trial(), make_trial(tokens=2)
    again = [replace(trial, repeat=1) for trial in (small, large)]
    sweep([small, large, *again], weight_bytes=lambda t: 7 * len(t.options))
    assert asked[0] == {small.engine_key(): 14, large.engine_key(): 21}


def test_of_the_engines_the_one_needed_last_makes_room() -> None:
    fleet, ended = fleet_of("abc")
    with room_for(3):
        fleet._make_room("d", ["b", "c", "b", "a"])
        assert ended == ["a closed"]
        fleet._make_room("d", ["b", "c", "b", "a"])
    assert ended == ["a closed"], "there was room"


def test_an_engine_that_nobody_needs_makes_room_first() -> None:
    fleet, ended = fleet_of("abc")
    with room_for(1):
        fleet._make_room("d", ["a", "c"])
    assert ended == ["b closed", "c closed", "a closed"]


def test_failed_starts_count_only_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed, started, failed: the next trial still tries; after two in a row none does."""
    fleet, _ = fleet_of("")
    crash = NoResult("failed", "no luck")
    ready = Ready(BackendInfo("x", "1", "simulation", {}, True), 0.1, Footprint(1))
    answers: Iterator[Ready | NoResult] = iter([crash, ready, crash, crash])
    started: list[str] = []

    def start(job: TrialJob, listener: Any, version: str) -> Ready | NoResult:
        started.append(job.trial.engine_key())
        answer = next(answers)
        if isinstance(answer, Ready):
            fleet._alive[job.trial.engine_key()] = cast(EngineProcess, Idle("x", []))
        return answer

    monkeypatch.setattr(fleet, "_start", start)
    job = cast(Any, SimpleNamespace(trial=make_trial()))
    found = []
    for _ in range(5):
        found.append(fleet._engine(job, [], lambda message: None))
        fleet._alive.clear()  # it ended after its trial
    assert [answer is crash for answer in found] == [True, False, True, True, True]
    assert len(started) == 4


def test_what_an_engine_occupies_is_kept_for_its_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Placement, "gpus", lambda placement, pids: tuple(pids))
    fleet = Fleet(open_session, tmp_path)
    trial = make_trial()
    try:
        job = TrialJob("a-key", trial, {}, 60.0)
        engine = fleet._engine(job, [], lambda message: None)
        assert isinstance(engine, EngineProcess)
        assert engine.ready is not None
        assert fleet._footprints == {trial.engine_key(): engine.ready.footprint}
        assert engine.ready.footprint.resident > 5_000_000
        assert engine.pid in fleet._gpus[trial.engine_key()]
    finally:
        fleet.close()
    assert not engine.is_alive()


def test_an_engine_ends_with_its_last_trial_and_before_the_next_begins(tmp_path: Path) -> None:
    """Even where there is room: nothing idle shall disturb what comes after it."""
    closed = tmp_path / "closed"
    seen: list[bool] = []
    first = make_trial(test={"closed": str(closed), "opened": str(tmp_path / "opened")})
    sweep(
        [first, make_trial(tokens=2)],
        room=5,
        events=lambda event: seen.append(closed.exists()) if event.kind == "started" else None,
    )
    assert seen == [False, True]
    assert len(opened(tmp_path / "opened")) == 1


@pytest.mark.parametrize(
    ("stay", "others", "stays"),
    [("last", False, True), ("last", True, False), ("room", True, True), (None, False, False)],
)
def test_an_engine_may_stay_for_what_is_decided_afterwards(
    tmp_path: Path, stay: Stay | None, others: bool, stays: bool
) -> None:
    """Until the fleet is closed; where another model is to come it may be in its way."""
    store, log = MemoryStore(), tmp_path / "opened"
    first = make_trial(test={"opened": str(log)})
    more = [replace(first, model=Model("other"))] if others else []
    with Fleet(open_session, None, stay=stay) as fleet:
        for trials in ([first, *more], [replace(first, repeat=1)]):
            run_sweep(trials, store, fleet, environment={}, fingerprint="machine")
            if trials[0].repeat == 0:
                assert (first.engine_key() in fleet.loaded) is stays
    assert [record.status for record in store.records] == ["ok"] * (2 + others)
    engines = [key for _, key in opened(log)]
    assert engines.count(first.engine_key()) == (1 if stays else 2)
    assert not fleet.loaded


def test_engines_are_closed_all_at_the_same_time() -> None:
    """A vLLM takes three seconds for it."""
    fleet, ended = fleet_of("ab")
    fleet.close()
    assert ended == ["a dismissed", "b dismissed", "a closed", "b closed"]
    fleet, ended = fleet_of("ab")
    with pytest.raises(RuntimeError), fleet:
        raise RuntimeError
    assert ended == ["a killed", "b killed"]
