from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.core import Trial, TrialRecord, UserError
from harness.sweep import Event, SweepResult, order, run_sweep
from results.store import Store
from tests.unit.harness.sessions import MemoryStore, make_trial, open_session


def sweep(
    trials: list[Trial], store: MemoryStore | None = None, **settings: Any
) -> tuple[SweepResult, list[TrialRecord]]:
    store = store or MemoryStore()
    result = run_sweep(
        trials, store, open_session, environment={"cpu": "x"}, fingerprint="machine", **settings
    )
    return result, store.records


def opened(path: Path) -> list[list[str]]:
    """(process id, engine key) of every session opened, in order."""
    return [line.split() for line in path.read_text().splitlines()]


def wait_until(condition: Callable[[], bool], limit_s: float) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_repeats_are_interleaved_forth_and_back() -> None:
    trials = [
        make_trial(seed=seed, repeat=repeat, tokens=engine)
        for engine in (1, 2, 3)
        for repeat in range(3)
        for seed in (0, 1)
    ]
    found = [(t.repeat, t.options["tokens"], t.seed) for t in order(trials)]
    forth = [(engine, seed) for engine in (1, 2, 3) for seed in (0, 1)]
    back = [(engine, seed) for engine in (3, 2, 1) for seed in (0, 1)]
    expected = [(0, *p) for p in forth] + [(1, *p) for p in back] + [(2, *p) for p in forth]
    assert found == expected


def test_a_drift_hits_the_same_cell_of_all_engines_alike() -> None:
    """Over an even number of repeats the mean place in the order is the same for every engine."""
    trials = [
        make_trial(seed=s, repeat=r, tokens=e) for r in range(4) for e in (1, 2, 3) for s in (0, 1)
    ]
    places: dict[tuple[int, int], list[int]] = {}
    for place, trial in enumerate(order(trials)):
        places.setdefault((trial.seed, trial.options["tokens"]), []).append(place)
    for seed in (0, 1):
        assert len({sum(places[seed, engine]) for engine in (1, 2, 3)}) == 1


def test_records_carry_everything() -> None:
    result, [record] = sweep([make_trial(requests=6)])
    assert result.statuses == {"ok": 1}
    assert record.status == "ok"
    assert record.error is None
    assert record.key == record.trial.key("machine")
    assert record.environment["cpu"] == "x"
    assert 0 <= record.environment["disturbance"]["others_share"] <= 1
    assert record.backend is not None
    assert record.backend.provenance == "simulation"
    assert record.setup_s == 0.25
    assert [g.request_id for g in record.generations] == [f"r{i}" for i in range(6)]
    assert all(len(g.token_ids) == 4 for g in record.generations)
    assert set(record.texts) == {f"r{i}" for i in range(6)}
    assert record.peak_memory_bytes is not None
    assert record.peak_memory_bytes > 5_000_000
    assert record.started_at.endswith("+00:00")


def test_the_memory_of_a_servers_client_is_not_the_servers() -> None:
    _, [record] = sweep([make_trial(test={"capabilities": ["server"]})])
    assert record.status == "ok"
    assert (record.peak_memory_bytes, record.energy_j) == (None, None)


def test_a_trial_in_which_every_request_failed_has_failed() -> None:
    result, [record, fine] = sweep(
        [make_trial(fail_fraction=1.0), make_trial(fail_ids=["r0", "r1"])]
    )
    assert result.failed == 1
    assert record.status == "failed"
    assert record.error == "all 6 requests failed; r0: scripted failure"
    assert [g.finished for g in record.generations] == ["error"] * 6
    assert fine.status == "ok"


def test_an_engine_serves_all_its_trials_and_engines_live_side_by_side(tmp_path: Path) -> None:
    test = {"opened": str(tmp_path / "opened")}
    trials = [
        make_trial(seed=s, repeat=r, tokens=e, test=test)
        for r in range(3)
        for e in (1, 2)
        for s in (0, 1)
    ]
    result, _ = sweep(trials, keep_alive=2)
    assert result.statuses == {"ok": 12}
    assert len(opened(tmp_path / "opened")) == 2


def test_without_memory_for_both_the_engines_take_turns(tmp_path: Path) -> None:
    test = {"opened": str(tmp_path / "opened"), "closed": str(tmp_path / "closed")}
    trials = [make_trial(repeat=r, tokens=e, test=test) for r in range(3) for e in (1, 2)]
    result, _ = sweep(trials, keep_alive=1)
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
    monkeypatch.setattr("harness.fleet.available_memory", lambda: round(free_share * total))
    test = {"opened": str(tmp_path / "opened")}
    sweep([make_trial(repeat=r, tokens=e, test=test) for r in range(2) for e in (1, 2, 3)])
    # 1 2 3, 3 2 1: where only one fits, the one at the turn is used twice in a row
    assert len(opened(tmp_path / "opened")) == engines


@pytest.mark.parametrize(
    ("doom", "status", "error"),
    [
        ("kill", "failed", "killed by SIGKILL during 'load'; it wrote last: my last words"),
        ("segfault", "failed", "killed by SIGSEGV during 'load'"),
        ("exit", "failed", "exited with code 3 during 'load'"),
        ("raise", "failed", "RuntimeError: broken engine"),
        ("memory", "out_of_memory", "MemoryError: no room"),
        ("torch-memory", "out_of_memory", "OutOfMemoryError: CUDA out of memory"),
        ("hang", "timeout", "the load was not over within its time limit of 0.5 s"),
    ],
)
def test_a_broken_child_costs_its_own_trial_only(
    tmp_path: Path, doom: str, status: str, error: str
) -> None:
    test = {"doom": {"1": doom}, "opened": str(tmp_path / "opened")}
    trials = [make_trial(seed=seed, test=test) for seed in range(3)]
    result, records = sweep(trials, time_limit_s=0.5, log_dir=tmp_path / "logs")
    assert [r.status for r in records] == ["ok", status, "ok"]
    assert records[1].error == error
    assert not records[1].validity.valid
    assert records[1].backend is not None
    assert result.failed == 1
    assert len(opened(tmp_path / "opened")) == 2
    # A cooperative engine keeps what it had; the trials around it are whole.
    assert len(records[1].generations) == (2 if doom == "hang" else 0)
    assert all(len(r.generations) == 6 for r in (records[0], records[2]))
    assert all(g.finished is None for g in records[1].generations)


def test_a_call_that_no_signal_reaches_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.engine_process.KILL_GRACE_S", 0.5)
    trials = [make_trial(seed=seed, test={"doom": {"1": "deaf"}}) for seed in range(3)]
    _, records = sweep(trials, time_limit_s=0.5)
    assert [r.status for r in records] == ["ok", "timeout", "ok"]
    assert records[1].error == "'load' was not over within 0.5 s"


def test_a_warm_up_that_hangs_is_a_timeout_too() -> None:
    test = {"doom": {"1": "hang"}, "early": [1]}
    _, records = sweep([make_trial(seed=s, test=test) for s in range(3)], time_limit_s=0.5)
    assert [r.status for r in records] == ["ok", "timeout", "ok"]
    assert records[1].error == "warm-up: the load was not over within its time limit of 0.5 s"


def test_logs_that_cannot_be_written_stop_the_sweep_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    with pytest.raises(UserError, match="logs: File exists; the sweep cannot go on"):
        sweep([make_trial()], log_dir=tmp_path / "logs")


def test_what_a_child_prints_goes_to_its_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sweep([make_trial(seed=1, test={"doom": {"1": "raise"}})], log_dir=tmp_path / "logs")
    [log] = (tmp_path / "logs").iterdir()
    assert log.name.startswith("scripted-")
    assert "RuntimeError: broken engine" in log.read_text()
    assert "Traceback" in log.read_text()
    assert capfd.readouterr() == ("", "")


def test_a_kill_while_the_kernel_counts_an_oom_kill_is_out_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = iter([7, 7, 8, 8, 8, 8, 8])
    monkeypatch.setattr("harness.engine_process.oom_kills", lambda: next(counts))
    _, [record] = sweep([make_trial(seed=1, test={"doom": {"1": "kill"}})])
    assert record.status == "out_of_memory"
    assert record.error == "killed by the kernel for memory during 'load'"


def test_an_engine_that_does_not_start_is_tried_twice(tmp_path: Path) -> None:
    bad = {"start": "raise"}
    trials = [make_trial(seed=s, test=bad) for s in range(5)] + [make_trial(seed=9)]
    events: list[Event] = []
    result, records = sweep(trials, events=events.append, keep_alive=1)
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
    events: list[Event] = []
    trials = [make_trial(seed=s, test={"start": "user-error"}) for s in range(3)]
    result, records = sweep([*trials, make_trial(seed=9)], events=events.append)
    assert [r.status for r in records] == ["failed"] * 3 + ["ok"]
    assert records[0].error == "model 'x': not a Llama"
    assert result.refusals == {"scripted: model 'x': not a Llama": 3}
    assert [e.refused for e in events if e.kind == "finished"] == [True] * 3 + [False]
    assert [e.phase for e in events].count("loading") == 2


def test_bad_data_of_a_trial_leaves_its_engine_alone(tmp_path: Path) -> None:
    test = {"bad_data": [1], "opened": str(tmp_path / "opened")}
    _, records = sweep([make_trial(seed=s, test=test) for s in range(3)])
    assert [r.status for r in records] == ["ok", "failed", "ok"]
    assert records[1].error == "rows.jsonl line 3: no field 'question'"
    assert len(opened(tmp_path / "opened")) == 1


def test_an_engine_that_needs_the_machine_for_itself_gets_it() -> None:
    picky = {"start": "raise-beside-others"}
    trials = [make_trial(repeat=r, test=t) for r in range(2) for t in ({}, picky)]
    result, _ = sweep(trials, keep_alive=5)
    assert result.statuses == {"ok": 4}


def test_an_engine_that_never_starts_is_killed_at_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("harness.engine_process.KILL_GRACE_S", 0.1)
    _, [record] = sweep([make_trial(test={"start": "hang"})], setup_limit_s=0.2)
    assert record.status == "timeout"
    assert record.error == "'loading' was not over within 0.2 s"


def test_stored_trials_are_not_run_again_and_failed_ones_are() -> None:
    store = MemoryStore()
    trials = [make_trial(seed=s, test={"doom": {"1": "raise"}}) for s in range(3)]
    sweep(trials, store)
    result, records = sweep([*trials, make_trial(seed=7)], store)
    assert result.stored == 2
    assert [r.trial.seed for r in records[3:]] == [1, 7]


def test_equal_trials_run_once() -> None:
    result, _ = sweep([make_trial(), make_trial()])
    assert result.statuses == {"ok": 1}


def test_every_record_is_stored_before_the_next_trial_begins() -> None:
    store = MemoryStore()
    seen: list[tuple[int, int]] = []

    def watch(event: Event) -> None:
        if event.kind == "started":
            seen.append((event.index, len(store.records)))

    sweep([make_trial(seed=s) for s in range(3)], store, events=watch)
    assert seen == [(0, 0), (1, 1), (2, 2)]


def test_events_tell_the_whole_story() -> None:
    events: list[Event] = []
    sweep([make_trial(requests=8, ttft_s=0.3)], events=events.append)
    story = [e.phase or e.kind for e in events if e.kind != "progress"]
    assert story == [
        *("started", "loading", "preparing", "warm-up", "load", "scoring", "finished"),
    ]
    assert events[0].label == "scripted | made-up | closed c=2 | repeat 0"
    rates = [e.tokens_per_s for e in events if e.kind == "progress"]
    assert len(rates) >= 4
    assert rates[-1] > 0
    final = [e for e in events if e.kind == "progress"][-1].progress
    assert final is not None
    assert 0 < final.tokens <= 32
    assert final.total == 8
    assert events[-1].record is not None


def test_a_full_disk_stops_the_sweep_with_one_line(tmp_path: Path) -> None:
    store = MemoryStore(full_after=2)
    test = {"opened": str(tmp_path / "opened")}
    with pytest.raises(UserError) as caught:
        sweep([make_trial(seed=s, test=test) for s in range(4)], store)
    text = str(caught.value)
    assert text.startswith("runs/x/trials/a.json: cannot store trial ")
    assert os.strerror(errno.ENOSPC) in text
    assert "\n" not in text
    assert len(store.records) == 2
    assert all(gone(int(pid)) for pid, _ in opened(tmp_path / "opened"))


@pytest.mark.skipif(
    os.geteuid() != 0 or sys.platform != "linux", reason="mounting a small disk needs root"
)
def test_a_really_full_disk_loses_nothing_that_was_stored(tmp_path: Path) -> None:
    """A disk of 64 KiB takes a few records; with room, the same sweep ends complete."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("this container may not mount")
    try:
        trials = [make_trial(seed=s, requests=20) for s in range(12)]
        settings: dict[str, Any] = {"environment": {}, "fingerprint": "machine"}
        with pytest.raises(UserError, match="No space left on device"):
            run_sweep(trials, Store(disk), open_session, **settings)
        stored = Store(disk).keys()
        assert 0 < len(stored) < 12
        assert all(Store(disk).read(key).status == "ok" for key in stored)
        subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
        result = run_sweep(trials, Store(disk), open_session, **settings)
        assert (result.stored, result.statuses) == (len(stored), {"ok": 12 - len(stored)})
        assert {p.suffix for p in (disk / "trials").iterdir()} == {".json", ".parquet"}
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_the_real_store_takes_the_records(tmp_path: Path) -> None:
    store = Store(tmp_path)
    trials = [make_trial(seed=s, test={"doom": {"1": "kill"}}) for s in range(2)]
    run_sweep(trials, store, open_session, environment={}, fingerprint="machine")
    keys = [trial.key("machine") for trial in trials]
    assert store.keys() == sorted(keys)
    assert [store.read(key).status for key in keys] == ["ok", "failed"]
    assert [store.has(key) for key in keys] == [True, False]


def test_what_an_engine_started_dies_with_it(tmp_path: Path) -> None:
    test = {"children": str(tmp_path / "children"), "doom": {"1": "kill"}}
    sweep([make_trial(seed=s, test=test) for s in range(3)])
    pids = [int(pid) for line in opened(tmp_path / "children") for pid in line]
    assert len(pids) == 4
    assert wait_until(lambda: all(gone(pid) for pid in pids), 5)


def test_an_interrupt_leaves_no_child_and_keeps_what_is_stored(tmp_path: Path) -> None:
    store = MemoryStore()
    test = {"opened": str(tmp_path / "opened")}

    def interrupt(event: Event) -> None:
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

    def look(event: Event) -> None:
        if event.index == 1 and event.kind in ("phase", "progress") and event.phase == "load":
            pid = int(opened(tmp_path / "opened")[0][0])
            times = psutil.Process(pid).cpu_times()
            used.append(times.user + times.system)

    slow = make_trial(ttft_s=0.4, tokens=1, test=test)
    sweep([make_trial(test=test), slow, make_trial(repeat=1, test=test)], events=look)
    assert len(used) >= 4
    assert used[-1] == used[0]


def test_sweeps_run_outside_the_main_thread_too() -> None:
    found: list[SweepResult] = []
    thread = threading.Thread(target=lambda: found.append(sweep([make_trial()])[0]))
    thread.start()
    thread.join(60)
    assert found
    assert found[0].statuses == {"ok": 1}
