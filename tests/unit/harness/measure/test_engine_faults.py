"""What a child does to itself costs its own trial only."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.measure.timed_window import LOOK_S, STILL_S, StandstillWatch
from tests.support.harness.sessions import make_trial
from tests.support.harness.sweeping import opened, sweep

SHORT_S, LONG_S = 3.0, 60.0
"""Limits of all trials of a sweep; the shorter one leaves healthy ones time on a machine that stood
still."""


@pytest.mark.parametrize(
    ("doom", "status", "error"),
    [
        ("kill", "failed", "killed by SIGKILL during 'load'; it wrote last: my last words"),
        ("segfault", "failed", "killed by SIGSEGV during 'load'"),
        ("exit", "failed", "exited with code 3 during 'load'"),
        ("raise", "failed", "RuntimeError: broken engine"),
        ("memory", "out_of_memory", "MemoryError: no room"),
        ("torch-memory", "out_of_memory", "OutOfMemoryError: CUDA out of memory"),
        ("hang", "timeout", f"the load was not over within its time limit of {SHORT_S:g} s"),
    ],
)
def test_a_broken_child_costs_its_own_trial_only(
    tmp_path: Path, doom: str, status: str, error: str
) -> None:
    test = {"doom": {"1": doom}, "opened": str(tmp_path / "opened")}
    trials = [make_trial(seed=seed, test=test) for seed in range(3)]
    limit_s = SHORT_S if doom == "hang" else LONG_S
    result, records = sweep(trials, time_limit_s=limit_s, log_dir=tmp_path / "logs")
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


def test_a_trial_in_which_its_engine_was_stopped_for_a_while_is_void() -> None:
    """It is measured whole, and what stood still looks like latency."""
    _, records = sweep([make_trial(seed=s, test={"doom": {"1": "stop"}}) for s in range(2)])
    assert [r.status for r in records] == ["ok", "ok"]
    assert records[1].environment["disturbance"]["still_s"] > 0.5
    reasons = [reason for r in records for reason in r.validity.reasons if "stopped" in reason]
    assert len(reasons) == 1
    assert reasons[0].startswith("machine-noisy: the process that drives the engine hardly")


def test_a_call_that_lets_no_other_thread_run_is_no_standstill() -> None:
    many, took_s = 50_000_000, 0.0
    while took_s < 2 * (LOOK_S + STILL_S):
        many *= 2
        with StandstillWatch() as watch:
            begin = time.perf_counter()
            sum(range(many))
            took_s = time.perf_counter() - begin
        assert watch.still_s == 0


def test_a_call_that_no_signal_reaches_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.measure.engine_process.KILL_GRACE_S", 0.5)
    trials = [make_trial(seed=seed, test={"doom": {"1": "deaf"}}) for seed in range(3)]
    _, records = sweep(trials, time_limit_s=SHORT_S)
    assert [r.status for r in records] == ["ok", "timeout", "ok"]
    assert records[1].error == f"'load' was not over within {SHORT_S:g} s"


def test_a_warm_up_that_hangs_is_a_timeout_too() -> None:
    test = {"doom": {"1": "hang"}, "early": [1]}
    _, records = sweep([make_trial(seed=s, test=test) for s in range(3)], time_limit_s=SHORT_S)
    assert [r.status for r in records] == ["ok", "timeout", "ok"]
    told = f"warm-up: the load was not over within its time limit of {SHORT_S:g} s"
    assert records[1].error == told


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
    monkeypatch.setattr("harness.measure.engine_process.oom_kills", lambda: next(counts))
    _, [record] = sweep([make_trial(seed=1, test={"doom": {"1": "kill"}})])
    assert record.status == "out_of_memory"
    assert record.error == "killed by the kernel for memory during 'load'"
