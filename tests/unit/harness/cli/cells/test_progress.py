"""What is said while trials run and nobody watches, and before they begin."""

from __future__ import annotations

import dataclasses
import io
import re
import sys
import threading
import time

import pytest

from harness.cli import progress
from harness.cli.progress import SweepDisplay, SweepLog
from harness.core.nouns import TrialRecord, Workload
from harness.measure.load_loop import LoadProgress
from harness.measure.machine import others
from harness.measure.sweep import SweepEvent
from tests.support.harness.sessions import make_trial


def event(kind: str, index: int = 2, **more: object) -> SweepEvent:
    return SweepEvent(kind, index, 6, make_trial(), **more)  # type: ignore[arg-type]


def line_of(happened: SweepEvent | None, elapsed_s: float, monkeypatch: pytest.MonkeyPatch) -> str:
    log = SweepLog()
    log._began_s = 0.0
    if happened is not None:
        log.see(happened)
    monkeypatch.setattr(time, "monotonic", lambda: elapsed_s)
    return log._line()


def test_a_line_says_where_the_sweep_is(monkeypatch: pytest.MonkeyPatch) -> None:
    label = event("started").label
    assert line_of(None, 31, monkeypatch) == "0:00:31 starting"
    found = line_of(event("phase", index=0, phase="loading"), 60, monkeypatch)
    assert found == f"0:01:00 trial 1 of 6; {label}; loading", "nothing is known of the rest yet"
    underway = event("progress", progress=LoadProgress(24, 64, 900), tokens_per_s=812.4)
    found = line_of(underway, 90, monkeypatch)
    assert found == (
        f"0:01:30 trial 3 of 6; {label}; 24 of 64 requests, 812 tok/s; about 0:03:00 left"
    )
    for elapsed_s, said in ((12.7, "12 of 30 s"), (31.0, "30 of 30 s")):
        timed = LoadProgress(24, 64, 900, elapsed_s, 30.0)
        found = line_of(event("progress", progress=timed, tokens_per_s=812.4), 90, monkeypatch)
        assert f"; {said}, 812 tok/s; " in found, "a load of a time is as far as its time is"
    search = SweepEvent("phase", 2, 0, make_trial(), phase="loading")
    assert line_of(search, 60, monkeypatch) == f"0:01:00 trial 3; {label}; loading", "of how many?"
    last = event("finished", index=5)
    assert line_of(last, 3700, monkeypatch) == f"1:01:40 trial 6 of 6; {label}"


def test_labels_are_counted_where_answers_have_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = dataclasses.replace(make_trial(), workload=Workload("sentiment"))
    for elapsed_s, rate in ((0.0, 0), (0.5, 48)):
        going = LoadProgress(24, 64, 0, elapsed_s)
        found = line_of(SweepEvent("progress", 2, 6, asked, progress=going), 90, monkeypatch)
        assert f"; 24 of 64 requests, {rate} labels/s; " in found


class Terminal(io.StringIO):
    """Somebody watches."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_requests_or_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    with SweepDisplay() as display:
        for progress, shown in (
            (LoadProgress(24, 64, 900, 12.7, 30.0), (12, 30, "s")),
            (LoadProgress(24, 64, 900, 12.7), (24, 64, "")),
            (LoadProgress(24, 64, 900, 33.3, 29.5), (30, 30, "s")),
        ):
            display.show(event("progress", progress=progress))
            _, task = display._bar.tasks
            assert (task.completed, task.total, task.fields["unit"]) == shown
        display._bar.refresh()
        assert "30/30 s" in re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
        display.show(event("phase", phase="scoring"))
        assert task.fields["unit"] == ""


def test_a_result_goes_to_standard_output_beside_a_live_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    monkeypatch.setattr(sys, "stdout", piped := io.StringIO())
    monkeypatch.setenv("TERM", "xterm")
    with SweepDisplay() as display:
        display.show(event("phase", phase="loading"))
        display.result("vllm, gsm8k: 12/s")
        assert display._bar.live.is_started, "and it goes on"
    assert piped.getvalue() == "vllm, gsm8k: 12/s\n"
    assert "12/s" not in screen.getvalue()


def test_lines_come_while_an_engine_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PERIOD_S", 0.01)
    enough = threading.Event()
    told = SweepLog._line

    def counted(log: SweepLog) -> str:
        heard.append(log._event is not None)
        if sum(heard) == 3:
            enough.set()
        return told(log)

    heard: list[bool] = []
    monkeypatch.setattr(SweepLog, "_line", counted)
    with SweepDisplay() as display:
        display.show(event("phase", phase="loading"))
        assert enough.wait(30)
    text = capsys.readouterr().err
    assert text.count("trial 3 of 6") >= 3
    time.sleep(0.05)
    assert capsys.readouterr().err == "", "and none after the end"


def test_failures_are_still_told(capsys: pytest.CaptureFixture[str]) -> None:
    failed = TrialRecord("k", make_trial(), {}, "failed", error="boom")
    with SweepDisplay() as display:
        display.show(event("finished", record=failed))
    assert "failed: boom" in capsys.readouterr().err


def test_a_busy_machine_is_said_before_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    progress.warn_of_others(0.05)
    assert capsys.readouterr().err == ""
    progress.warn_of_others(0.37)
    assert "this machine is busy: other processes use 37%" in capsys.readouterr().err


def test_what_others_use_is_all_but_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter([(100.0, 1000.0, 10.0), (106.0, 1010.0, 14.0)])
    monkeypatch.setattr(others, "_seconds", lambda: next(states))
    assert others.OthersWatch().share() == pytest.approx(0.2)
