"""A verdict is the program's own, however many run beside it on however small a share."""

from __future__ import annotations

import threading

import pytest

from workloads.sandbox import runner
from workloads.sandbox.runner import SandboxResult, UntrustedProgram, run_programs

LATE = SandboxResult(passed=False, reason="time limit of 5 s", out_of_time=True)


class CrowdedMachine:
    """Stands in for `run_program`: programs run out of time the first time, together."""

    def __init__(self, ends: bool) -> None:
        self._ends = ends
        self._meet = threading.Barrier(2)
        self.together: list[str] = []
        self.alone: list[str] = []

    def run(self, program: UntrustedProgram, *, timeout_s: float) -> SandboxResult:
        if program.source in self.together:
            assert threading.current_thread() is threading.main_thread()
            self.alone.append(program.source)
            return SandboxResult(passed=True) if self._ends else LATE
        self.together.append(program.source)
        self._meet.wait(timeout=60)
        return SandboxResult(passed=False) if program.source == "wrong" else LATE


@pytest.mark.parametrize("ends", [True, False])
def test_what_runs_out_of_time_runs_once_more_alone(
    monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    machine = CrowdedMachine(ends)
    monkeypatch.setattr(runner, "run_program", machine.run)
    monkeypatch.setattr(runner, "usable_cores", lambda: 2)
    programs = [UntrustedProgram(source, "") for source in ("a", "wrong", "b", "c")]
    results = run_programs(programs, timeout_s=5)
    assert [result.passed for result in results] == [ends, False, ends, ends]
    assert machine.alone == ["a", "b", "c"]


def test_a_program_that_never_ends_is_late_and_a_wrong_one_is_not() -> None:
    endless, wrong = run_programs(
        [UntrustedProgram("while True: pass", ""), UntrustedProgram("x = 1 / 0", "")], timeout_s=0.5
    )
    assert (endless.passed, endless.out_of_time) == (False, True)
    assert (wrong.passed, wrong.out_of_time) == (False, False)
