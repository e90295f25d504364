"""What a sweep stores and tells, and what stops it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.nouns import TrialRecord
from harness.measure.load_loop import LoadProgress
from harness.measure.sweep import Invocation, SweepEvent, SweepResult, Teller
from results import load
from results.rows import summaries
from results.store.folder import Store
from tests.support.harness.sessions import MemoryStore, make_trial
from tests.support.harness.sweeping import gone, opened, sweep, swept


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

    def watch(event: SweepEvent) -> None:
        if event.kind == "started":
            seen.append((event.index, len(store.records)))

    sweep([make_trial(seed=s) for s in range(3)], store, events=watch)
    assert seen == [(0, 0), (1, 1), (2, 2)]


def test_events_tell_the_whole_story() -> None:
    events: list[SweepEvent] = []
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


def test_the_rate_told_is_that_of_the_load_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[SweepEvent] = []
    now = iter([100.0, 104.0, 106.0])
    monkeypatch.setattr("harness.measure.sweep.time", SimpleNamespace(monotonic=lambda: next(now)))
    teller = Teller(events.append, 0, 1, make_trial())
    teller.message("warm-up")
    teller.message("load")
    teller.message(LoadProgress(1, 6, 50))
    assert [event.tokens_per_s for event in events] == [0.0, 0.0, 25.0]


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
            swept(trials, Store(disk), **settings)
        stored = Store(disk).keys()
        assert 0 < len(stored) < 12
        assert all(Store(disk).read(key).status == "ok" for key in stored)
        subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
        result = swept(trials, Store(disk), **settings)
        assert (result.stored, result.statuses) == (len(stored), {"ok": 12 - len(stored)})
        assert {p.suffix for p in (disk / "trials").iterdir()} == {".json", ".parquet"}
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_the_real_store_takes_the_records(tmp_path: Path) -> None:
    store = Store(tmp_path)
    trials = [make_trial(seed=s, test={"doom": {"1": "kill"}}) for s in range(2)]
    swept(trials, store, environment={}, fingerprint="machine")
    keys = [trial.key("machine") for trial in trials]
    assert store.keys() == sorted(keys)
    assert [store.read(key).status for key in keys] == ["ok", "failed"]
    assert [store.has(key) for key in keys] == [True, False]


def test_sweeps_run_outside_the_main_thread_too() -> None:
    found: list[SweepResult] = []
    thread = threading.Thread(target=lambda: found.append(sweep([make_trial()])[0]))
    thread.start()
    thread.join(300)
    assert found
    assert found[0].statuses == {"ok": 1}


def test_records_name_the_invocation_and_keep_its_clock() -> None:
    """Another call is another invocation; it is no part of a trial's key."""
    store = MemoryStore()
    sweep([make_trial(seed=0), make_trial(seed=1)], store)
    sweep([make_trial(seed=2)], store)
    names = [record.environment["invocation"] for record in store.records]
    assert names[0] == names[1] != names[2]
    since = [record.environment["since_invocation_s"] for record in store.records]
    assert 0 <= since[0] < since[1]
    assert all(record.key == record.trial.key("machine") for record in store.records)


def test_an_invocations_clock_begins_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1000.0, 1002.5])
    clock = SimpleNamespace(clock_gettime=lambda clock: next(times))
    monkeypatch.setattr("harness.measure.sweep.time", clock)
    assert Invocation().now()["since_invocation_s"] == 2.5


def test_a_resumed_sweep_marks_the_pairs_that_it_was_cut_in(tmp_path: Path) -> None:
    """In the order A B, B A, A B the sweep ends after three trials: repeat 1 is in two halves."""
    engines = {"a": 0.002, "b": 0.001}
    trials = [make_trial(repeat=r, itl_s=itl_s) for r in range(3) for itl_s in engines.values()]
    choices = [{"name": "scripted", "options": t.options} for t in trials[:2]]
    store = Store(tmp_path)
    store.write_experiment(json.dumps({"reference": "scripted", "backends": choices}))

    def stop(event: SweepEvent) -> None:
        if (event.kind, event.index) == ("started", 3):
            raise KeyboardInterrupt

    settings: Any = {"environment": {}, "fingerprint": "machine"}
    with pytest.raises(KeyboardInterrupt):
        swept(trials, store, events=stop, **settings)
    assert swept(trials, store, **settings).stored == 3
    marked = [
        (row["options"]["itl_s"], row["repeat"])
        for row in summaries(load(tmp_path))
        if any(reason.startswith("pairs-apart: ") for reason in row["invalid_reasons"])
    ]
    assert marked == [(engines["b"], 1)]


class StrictStore(MemoryStore):
    """Takes no telemetry, as a store of JSON does not take a backend's own objects."""

    def write(self, record: TrialRecord) -> None:
        if record.generations and record.trial.seed == 1:
            raise TypeError("int64 is not JSON serializable")
        super().write(record)


def test_what_cannot_be_stored_costs_its_trial_alone() -> None:
    result, records = sweep([make_trial(seed=seed) for seed in (0, 1, 2)], StrictStore())
    assert result.statuses == {"ok": 2, "failed": 1}
    (failed,) = [record for record in records if record.status == "failed"]
    assert failed.trial.seed == 1
    assert failed.error == (
        "what the backend handed out cannot be stored: TypeError: int64 is not JSON serializable"
    )
    assert not failed.validity.valid
