"""Engines: how many live side by side, how they start and how they end."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.core.names import QUALITY
from harness.core.nouns import Load
from harness.measure.engine_process import EngineProcess
from harness.measure.fleet import Fleet, Stay
from harness.measure.messages import NoResult, TrialJob
from harness.measure.sweep import SweepEvent, run_sweep
from tests.support.harness.sessions import MemoryStore, make_trial, open_session
from tests.support.harness.sweeping import gone, opened, sweep, wait_until

ROOT = Path(__file__).parents[4]


def test_an_engine_serves_all_its_trials_and_engines_live_side_by_side(tmp_path: Path) -> None:
    test = {"opened": str(tmp_path / "opened")}
    trials = [
        make_trial(seed=s, repeat=r, tokens=e, test=test)
        for r in range(3)
        for e in (1, 2)
        for s in (0, 1)
    ]
    result, _ = sweep(trials, room=2)
    assert result.statuses == {"ok": 12}
    assert len(opened(tmp_path / "opened")) == 2


@pytest.mark.parametrize("stay", [None, "last", "room"])
def test_each_repeat_has_engines_of_its_own_where_they_are_loaded_anew(
    tmp_path: Path, stay: Stay | None
) -> None:
    """What is asked behind all repeats has one of its own too, and nobody waits for it idle."""
    test = {"opened": str(tmp_path / "opened"), "closed": str(tmp_path / "closed")}
    trials = [
        replace(make_trial(seed=s, repeat=r, tokens=e, test=test), reload=True)
        for r in range(3)
        for s in (0, 1)
        for e in (1, 2)
    ]
    first, second = (trial.engine_key() for trial in trials[:2])
    trials.append(replace(trials[0], load=Load(QUALITY, concurrency=2)))
    alive: list[int] = []
    with Fleet(open_session, None, stay=stay) as fleet:
        result = run_sweep(
            trials,
            MemoryStore(),
            fleet,
            environment={},
            fingerprint="machine",
            events=lambda event: alive.append(len(fleet.loaded)),
        )
        assert not fleet.loaded
    assert result.statuses == {"ok": 13}
    keys = [key for _, key in opened(tmp_path / "opened")]
    # A B, B A, A B, and the last one alone
    assert keys == [first, second, second, first, first, second, first]
    assert len({pid for pid, _ in opened(tmp_path / "opened")}) == 7
    assert max(alive) == 2


def test_an_engine_that_is_loaded_anew_takes_the_place_of_the_last_loading(tmp_path: Path) -> None:
    """Also where each probe keeps its engine for the next one."""
    with Fleet(open_session, None) as fleet:
        for repeat in (0, 0, 1, 1, 2):
            trial = replace(make_trial(repeat=repeat), reload=True)
            record = fleet.run(TrialJob("key", trial, {}, None), [trial], lambda message: None)
            assert record.status == "ok"
            assert fleet.loaded == {f"{trial.engine_key()} {repeat}"}


def test_no_version_keeps_an_engine_of_a_repeat_that_is_over(tmp_path: Path) -> None:
    with Fleet(open_session, None, versions={"base": None, "new": None}) as fleet:
        for repeat in range(2):
            trial = replace(make_trial(repeat=repeat), reload=True)
            job = TrialJob("key", trial, {}, None)
            later = [replace(trial, repeat=2)]
            fleet.run(job, [trial, *later], lambda message: None, "base")
            assert len(fleet.loaded) == 1
            fleet.run(job, later, lambda message: None, "new")
            assert not fleet.loaded


def test_without_memory_for_both_the_engines_take_turns(tmp_path: Path) -> None:
    test = {"opened": str(tmp_path / "opened"), "closed": str(tmp_path / "closed")}
    trials = [make_trial(repeat=r, tokens=e, test=test) for r in range(3) for e in (1, 2)]
    result, _ = sweep(trials, room=1)
    assert result.statuses == {"ok": 6}
    keys = [key for _, key in opened(tmp_path / "opened")]
    first, second = trials[0].engine_key(), trials[1].engine_key()
    # A B, B A, A B: at each turn of the order the engine at hand is used again.
    assert keys == [first, second, first, second]
    assert (tmp_path / "closed").exists()


@pytest.mark.parametrize(
    ("free_share", "engines"),
    [pytest.param(0.9, 3, id="plenty"), pytest.param(0.05, 5, id="scarce")],
)
def test_free_memory_decides_how_many_engines_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_share: float, engines: int
) -> None:
    total = psutil.virtual_memory().total
    monkeypatch.setattr("harness.measure.fleet.available_memory", lambda: round(free_share * total))
    test = {"opened": str(tmp_path / "opened")}
    sweep([make_trial(repeat=r, tokens=e, test=test) for r in range(2) for e in (1, 2, 3)])
    # 1 2 3, 3 2 1: where only one fits, the one at the turn is used twice in a row
    assert len(opened(tmp_path / "opened")) == engines


def test_an_engine_that_does_not_start_is_tried_twice(tmp_path: Path) -> None:
    bad = {"start": "raise"}
    trials = [make_trial(seed=s, test=bad) for s in range(5)] + [make_trial(seed=9)]
    events: list[SweepEvent] = []
    result, records = sweep(trials, events=events.append, room=1)
    assert [r.status for r in records] == ["failed"] * 5 + ["ok"]
    assert {r.error for r in records[:5]} == {"ValueError: engine core initialisation failed"}
    assert all(r.backend is None for r in records[:5])
    assert [e.phase for e in events].count("loading") == 3
    assert result.statuses == {"failed": 5, "ok": 1}


def test_an_engine_killed_while_it_loads_gets_a_second_chance(tmp_path: Path) -> None:
    test = {"start": "killed-once", "marker": str(tmp_path / "marker")}
    _, records = sweep([make_trial(seed=s, test=test) for s in range(3)])
    assert [r.status for r in records] == ["ok"] * 3


def test_an_engine_that_starts_at_the_second_try_runs_the_rest(tmp_path: Path) -> None:
    test = {"start": "once", "marker": str(tmp_path / "marker")}
    _, records = sweep([make_trial(seed=s, test=test) for s in range(3)])
    assert [r.status for r in records] == ["failed", "ok", "ok"]


def test_bad_input_of_an_engine_is_told_and_not_tried_again() -> None:
    events: list[SweepEvent] = []
    trials = [make_trial(seed=s, test={"start": "user-error"}) for s in range(3)]
    result, records = sweep([*trials, make_trial(seed=9)], events=events.append)
    assert [r.status for r in records] == ["failed"] * 3 + ["ok"]
    assert records[0].error == "model 'x': not a Llama"
    assert result.refusals == {"scripted: model 'x': not a Llama": 3}
    assert [e.refused for e in events if e.kind == "finished"] == [True] * 3 + [False]
    assert [e.phase for e in events].count("loading") == 2


def test_a_server_that_is_away_costs_its_own_trials_and_nobody_their_engine(
    tmp_path: Path,
) -> None:
    """Its engine process has died with a trial and cannot be opened for a while."""
    server = {"doom": {"1": "raise"}, "away": [2, 3, 4], "busy": [5, 6, 7]}
    other = {"opened": str(tmp_path / "opened")}
    trials = [make_trial(seed=s, test=t) for s in range(9) for t in (server, other)]
    events: list[SweepEvent] = []
    result, records = sweep(trials, events=events.append, room=5)
    lost = [r.trial.seed for r in records if r.status == "failed"]
    assert lost == [1, 2, 3, 4, 5, 6, 7]
    assert result.refusals == {}
    assert {r.error for r in records[4:]} == {None, "the server is away", "the server is busy"}
    assert len(opened(tmp_path / "opened")) == 1


def test_a_server_that_never_answered_is_bad_input_and_a_busy_one_is_not() -> None:
    for name, refusals, statuses in (
        ("away", {"scripted: the server is away": 4}, ["failed"] * 4),
        ("busy", {}, ["failed", "ok", "ok", "ok"]),
    ):
        result, records = sweep([make_trial(seed=s, test={name: [0]}) for s in range(4)])
        assert [r.status for r in records] == statuses
        assert result.refusals == refusals


def test_bad_data_of_a_trial_leaves_its_engine_alone(tmp_path: Path) -> None:
    test = {"bad_data": [1], "opened": str(tmp_path / "opened")}
    _, records = sweep([make_trial(seed=s, test=test) for s in range(3)])
    assert [r.status for r in records] == ["ok", "failed", "ok"]
    assert records[1].error == "rows.jsonl line 3: no field 'question'"
    assert len(opened(tmp_path / "opened")) == 1


def test_a_trial_whose_code_was_edited_meanwhile_has_failed(tmp_path: Path) -> None:
    """Asked before the engine is started, when it is there and when it has run the trial."""
    trials = [make_trial(seed=s, test={"opened": str(tmp_path / "opened")}) for s in range(4)]
    edits = {0: ["", "", "a.py changed"], 1: ["", "a.py changed"], 2: ["a.py changed"], 3: []}
    asked = {seed: iter(answers) for seed, answers in edits.items()}
    result, records = sweep(trials, edited=lambda trial: next(asked[trial.seed], ""))
    assert [r.status for r in records] == ["failed"] * 3 + ["ok"]
    assert {r.error for r in records[:3]} == {
        "edited while the run went on: a.py changed; run again"
    }
    assert not any(r.generations for r in records[:3])
    assert (result.statuses, result.refusals) == ({"failed": 3, "ok": 1}, {})
    # an engine that may have taken the edit in serves no other trial
    assert len(opened(tmp_path / "opened")) == 3


def test_an_engine_that_needs_the_machine_for_itself_gets_it() -> None:
    picky = {"start": "raise-beside-others"}
    trials = [make_trial(repeat=r, test=t) for r in range(2) for t in ({}, picky)]
    result, _ = sweep(trials, room=5)
    assert result.statuses == {"ok": 4}


def test_an_engine_that_never_starts_is_killed_at_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.measure.engine_process.KILL_GRACE_S", 0.1)
    monkeypatch.setattr("harness.measure.fleet.SETUP_LIMIT_S", 0.2)
    _, [record] = sweep([make_trial(test={"start": "hang"})], time_limit_s=0.1)
    assert record.status == "timeout"
    assert record.error == (
        "'loading' was not over within 0.2 s; a 'time_limit_s' above 0.2 holds for an engine's "
        "start too"
    )


@pytest.mark.parametrize(("limit_s", "given"), [(60.0, 1800.0), (7200.0, 7200.0), (None, None)])
def test_an_engine_may_start_for_as_long_as_a_phase_may_take(
    monkeypatch: pytest.MonkeyPatch, limit_s: float | None, given: float | None
) -> None:
    """A large model from a slow disk needs longer than half an hour."""
    found: list[float | None] = []

    def start(engine: Any, session: Any, trial: Any, limit: float | None, told: Any) -> NoResult:
        found.append(limit)
        return NoResult("failed", "no luck", by_user=True)

    monkeypatch.setattr(EngineProcess, "start", start)
    _, [record] = sweep([make_trial()], time_limit_s=limit_s)
    assert (record.error, found) == ("no luck", [given])


def test_what_an_engine_started_dies_with_it(tmp_path: Path) -> None:
    test = {"children": str(tmp_path / "children"), "doom": {"1": "kill"}}
    sweep([make_trial(seed=s, test=test) for s in range(3)])
    pids = [int(pid) for line in opened(tmp_path / "children") for pid in line]
    assert len(pids) == 4
    assert wait_until(lambda: all(gone(pid) for pid in pids), 60)


def test_what_an_engine_started_dies_with_the_sweep_too(tmp_path: Path) -> None:
    """kill -9 of the sweep: the kernel ends the engine, its guard ends what the engine started."""
    children = tmp_path / "children"
    code = (
        "from tests.support.harness.sessions import make_trial; "
        "from tests.support.harness.sweeping import sweep; "
        f"sweep([make_trial(ttft_s=600.0, test={{'children': {str(children)!r}}})])"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as sweeping:
        try:
            assert wait_until(lambda: children.exists() and bool(opened(children)), 300)
        finally:
            sweeping.kill()
    pids = [int(pid) for pid in opened(children)[0]]
    assert len(pids) == 2
    assert wait_until(lambda: all(gone(pid) for pid in pids), 60)


def test_an_interrupt_leaves_no_child_and_keeps_what_is_stored(tmp_path: Path) -> None:
    store = MemoryStore()
    test = {"opened": str(tmp_path / "opened")}

    def interrupt(event: SweepEvent) -> None:
        if event.kind == "progress" and event.index == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep([make_trial(seed=s, test=test) for s in range(3)], store, events=interrupt)
    assert [r.status for r in store.records] == ["ok"]
    assert all(gone(int(pid)) for pid, _ in opened(tmp_path / "opened"))


def test_a_waiting_engine_uses_no_processor_time(tmp_path: Path) -> None:
    """While one engine runs for a second, the other one sleeps on its pipe."""
    test = {"opened": str(tmp_path / "opened")}
    used: list[float] = []

    def look(event: SweepEvent) -> None:
        if event.index == 1 and event.kind in ("phase", "progress") and event.phase == "load":
            pid = int(opened(tmp_path / "opened")[0][0])
            times = psutil.Process(pid).cpu_times()
            used.append(times.user + times.system)

    slow = make_trial(ttft_s=0.4, tokens=1, test=test)
    sweep([make_trial(test=test), slow, make_trial(repeat=1, test=test)], events=look)
    assert len(used) >= 4
    assert used[-1] == used[0]
