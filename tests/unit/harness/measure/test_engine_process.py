"""What the sweep makes of an engine's messages, its silence and its end."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.core.nouns import BackendInfo, Validity
from harness.measure import engine_process
from harness.measure.engine_process import EngineProcess
from harness.measure.load_loop import LoadProgress
from harness.measure.machine.meters import Footprint
from harness.measure.messages import NoResult, Ready, TrialJob
from tests.support.harness.sessions import make_trial
from tests.support.harness.sweeping import gone, opened, sweep, wait_until

SILENCE = object()


class Line:
    """A pipe whose other end says these things, one every three seconds."""

    def __init__(self, said: Iterable[Any], clock: SimpleNamespace) -> None:
        self.said, self.clock, self.asked = list(said), clock, list[Any]()

    def send(self, question: Any) -> None:
        self.asked.append(question)

    def poll(self, timeout_s: float) -> bool:
        if timeout_s:
            self.clock.now_s += 3.0
        if self.said and self.said[0] is SILENCE:
            self.said.pop(0)
            return False
        return bool(self.said)

    def recv(self) -> Any:
        return self.said.pop(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr(engine_process, "time", SimpleNamespace(monotonic=lambda: now.now_s))
    return now


def engine(line: Line | None, exit_code: int | None = None) -> EngineProcess:
    """One whose process and pipe are the test's."""
    found = object.__new__(EngineProcess)
    process = SimpleNamespace(poll=lambda: exit_code, wait=lambda timeout: exit_code, pid=1)
    found._process = cast(Any, process)
    found._channel = cast(Any, line)
    found._log = io.BytesIO()
    found._log_begin, found._oom_kills = 0, 0
    return found


def test_each_phase_has_the_whole_limit_for_itself(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """18 s in all, no phase longer than 5 s and its grace of none."""
    monkeypatch.setattr(engine_process, "ALARM_GRACE_S", 0.0)
    monkeypatch.setattr(engine_process, "KILL_GRACE_S", 0.0)
    told: list[Any] = []
    line = Line([SILENCE, "warm-up", SILENCE, "load", SILENCE, "an answer of another kind"], clock)
    line.said[-1] = NoResult("failed", "its answer")
    found = engine(line)._ask("question", 5.0, told.append, "preparing")
    assert found == NoResult("failed", "its answer")
    assert (line.asked, told) == (["question"], ["warm-up", "load"])
    # progress is no new phase
    talkative = Line(
        ["load", LoadProgress(1, 2, 3), SILENCE, LoadProgress(1, 2, 4), SILENCE], clock
    )
    found = engine(talkative)._ask("question", 5.0, told.append, "preparing")
    assert found == NoResult("timeout", "'load' was not over within 5 s")


def test_the_deadline_leaves_the_child_time_to_stop_by_itself(clock: SimpleNamespace) -> None:
    """A second until its alarm, five more to send what it has."""
    assert engine_process._deadline(10.0) == 100.0 + 10.0 + 1.0 + 5.0
    assert engine_process._deadline(None) == float("inf")


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("code", "oom_kills", "problem"),
    [
        (3, 1, NoResult("failed", "exited with code 3 during 'load'")),
        (-11, 1, NoResult("failed", "killed by SIGSEGV during 'load'")),
        (-9, 0, NoResult("failed", "killed by SIGKILL during 'load'", killed=True)),
        (
            -9,
            1,
            NoResult("out_of_memory", "killed by the kernel for memory during 'load'", killed=True),
        ),
        (-63, 0, NoResult("failed", "killed by signal 63 during 'load'")),
        (None, 0, NoResult("failed", "closed its pipe during 'load' and lives on")),
    ],
)
def test_the_end_of_a_process_is_told_as_what_it_was(
    monkeypatch: pytest.MonkeyPatch, code: int | None, oom_kills: int, problem: NoResult
) -> None:
    monkeypatch.setattr(engine_process, "oom_kills", lambda: oom_kills)
    assert engine(None, code)._autopsy("load") == problem


def test_what_a_process_sent_before_it_died_still_counts(clock: SimpleNamespace) -> None:
    line = Line([SILENCE, NoResult("failed", "said in time")], clock)
    found = engine(line, exit_code=0)._ask("question", 5.0, lambda message: None, "load")
    assert found == NoResult("failed", "said in time")


def test_the_last_lines_of_this_job_are_told_and_no_more() -> None:
    found = engine(None)
    found._log.write(b"of the job before\n")
    found._log_begin = found._log.seek(0, os.SEEK_END)
    found._log.write(b"one\ntwo\n\n  three \nfour\nfive\nsi\xffx\n")
    assert found._log_tail() == "; it wrote last: two / three / four / five / si\ufffdx"
    found._log.write(b"x" * 2000)
    assert len(found._log_tail()) == len("; it wrote last: ") + 600


def test_a_job_begins_with_a_log_and_a_count_of_its_own(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_process, "oom_kills", lambda: 7)
    found = engine(Line([NoResult("failed", "x")], clock))
    found._log.write(b"of the job before\n")
    found.run(TrialJob("key", make_trial(), {}, 5.0), lambda message: None)
    assert found._log_tail() == ""
    assert found._oom_kills == 7


def test_a_record_of_a_problem_keeps_what_is_known() -> None:
    job = TrialJob("a-key", make_trial(), {"cpu": "x"}, 60.0)
    ready = Ready(BackendInfo("x", "1", "simulation", {}, True), 1.5, Footprint(1))
    record = NoResult("out_of_memory", "no room").record(job, ready)
    assert (record.key, record.trial, record.status) == ("a-key", job.trial, "out_of_memory")
    assert (record.environment, record.setup_s, record.backend) == ({"cpu": "x"}, 1.5, ready.info)
    assert record.validity == Validity(False, ("failures: no room",))
    early = NoResult("failed", "never came up").record(job, None)
    assert (early.setup_s, early.backend, early.error) == (None, None, "never came up")


def test_an_engine_that_died_between_its_trials_is_started_again(tmp_path: Any) -> None:
    test = {"opened": str(tmp_path / "opened")}

    def kill(event: Any) -> None:
        if event.kind == "finished" and event.index == 0:
            pid = int(opened(tmp_path / "opened")[0][0])
            os.kill(pid, 9)
            assert wait_until(lambda: gone(pid), 60)

    result, _ = sweep([make_trial(seed=s, test=test) for s in range(2)], events=kill)
    assert result.statuses == {"ok": 2}
    assert len(opened(tmp_path / "opened")) == 2


def test_an_engine_leads_a_group_of_its_own(tmp_path: Any) -> None:
    """A Ctrl-C at the terminal does not reach it, and the whole group can be ended."""
    groups: list[bool] = []

    def look(event: Any) -> None:
        if event.kind == "phase" and event.phase == "load":
            pid = int(opened(tmp_path / "opened")[0][0])
            groups.append(os.getpgid(pid) == pid == os.getsid(pid))

    sweep([make_trial(test={"opened": str(tmp_path / "opened")})], events=look)
    assert groups == [True]
