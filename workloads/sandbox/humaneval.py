"""Which answers to HumanEval are right: programs, each run against its row's tests."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

from workloads.completions import complete_program, stub
from workloads.sandbox.runner import UntrustedProgram, run_programs

_PASSED: set[tuple[UntrustedProgram, float]] = set()
"""Programs that passed within their time limit, in this process: repeats of a trial ask the same of
the same ones. Those that failed are run again, since a busy machine may have been the reason."""
_UNUSABLE: dict[UntrustedProgram, str] = {}
"""By a row's program whose function does nothing why none could pass its tests here, as where they
import what the sandbox does not have; empty where that is not so."""
_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError")


def pass_at_1(
    pairs: Sequence[tuple[Mapping[str, str], str]], timeout_s: float, unscored: dict[int, str]
) -> list[dict[str, float]]:
    """Whether each answer's program passes its row's tests: by answer the score under its name.

    Args:
        pairs: rows, in the hub's fields, and answers.
        timeout_s: wall-clock seconds for each program.
        unscored: gets, by their places, why answers have no score: no program passes their rows'
            tests here, since these or the prompt cannot run.

    Raises:
        UserError: where programs cannot be held.
    """
    programs = [humaneval_program(*pair) for pair in pairs]
    _judge([p for p in programs if (p, timeout_s) not in _PASSED], timeout_s)
    passed = [(program, timeout_s) in _PASSED for program in programs]
    stubs = {
        place: replace(programs[place], source=stub(row["prompt"], row["entry_point"]))
        for place, (row, _) in enumerate(pairs)
        if not passed[place]
    }
    _try_rows([program for program in stubs.values() if program not in _UNUSABLE], timeout_s)
    unscored |= {place: why for place, program in stubs.items() if (why := _UNUSABLE[program])}
    return [
        {} if place in unscored else {"pass_at_1": float(one)} for place, one in enumerate(passed)
    ]


def _judge(programs: Sequence[UntrustedProgram], timeout_s: float) -> None:
    """Run each of them once and keep those that pass in `_PASSED`."""
    once = list(dict.fromkeys(programs))
    for program, result in zip(once, run_programs(once, timeout_s=timeout_s), strict=True):
        if result.passed:
            _PASSED.add((program, timeout_s))


def _try_rows(stubs: Sequence[UntrustedProgram], timeout_s: float) -> None:
    """Run rows whose function does nothing, and keep what they lack in `_UNUSABLE`."""
    once = list(dict.fromkeys(stubs))
    for program, result in zip(once, run_programs(once, timeout_s=timeout_s), strict=True):
        lacks = result.of_tests or result.reason.startswith(_IMPORT_ERRORS)
        part = "tests" if result.of_tests else "prompt"
        _UNUSABLE[program] = f"the row's {part} cannot run: {result.reason}" if lacks else ""


def humaneval_program(row: Mapping[str, str], text: str) -> UntrustedProgram:
    """The program that an answer makes, and the row's tests, for `sandbox.run_program`.

    The tests get the prompt's imports and helper functions from the prompt itself, and the function
    to complete, alone, from the answer.
    """
    prompt, name = row["prompt"], row["entry_point"]
    return UntrustedProgram(
        source=complete_program(prompt, name, text),
        tests=f"{row['test']}\n\ncheck({name})\n",
        names=(name,),
        given=_given(stub(prompt, name), row["test"], name),
    )


def _given(source: str, tests: str, name: str) -> str:
    """The prompt, or nothing where the tests use none of its names: imports cost time."""
    try:
        with warnings.catch_warnings(action="ignore"):
            names = set(compile(source, "<prompt>", "exec", dont_inherit=True).co_names) - {name}
    except (SyntaxError, ValueError):
        return source
    used = names.intersection(re.findall(r"\w+", tests))
    return source if used or "import *" in source else ""
