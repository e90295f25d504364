"""The verdict comes from what a program's functions return, whatever it does to be believed."""

from __future__ import annotations

import pytest

from tests.support.answers import forging_answers, forging_interpreters
from workloads.sandbox import runner as sandbox
from workloads.sandbox.runner import UntrustedProgram, run_program

FORGERIES = {
    **forging_interpreters.SABOTAGE,
    **forging_interpreters.FRAMES,
    **forging_answers.LIARS,
    **forging_answers.CHANNEL,
    **forging_answers.LEAVING,
    **forging_answers.TEXT,
}


@pytest.mark.parametrize(("source", "tests"), FORGERIES.values(), ids=FORGERIES.keys())
def test_verdict_is_not_forged(source: str, tests: str) -> None:
    result = run_program(UntrustedProgram(source, tests, ("f",)), timeout_s=3)
    assert not result.passed
    assert result.reason


@pytest.mark.parametrize(
    ("report", "passed"), [(b"P", True), (b"PP", False), (b"P\n", False), (b"", False)]
)
def test_only_the_whole_word_passes(report: bytes, passed: bool) -> None:
    result, protections = sandbox._verdict(b"Rab\n" + report, True, 0, 5.0)
    assert (result.passed, protections) == (passed, b"ab")
    assert not sandbox._verdict(b"Rab\n" + report, False, 0, 5.0)[0].passed
