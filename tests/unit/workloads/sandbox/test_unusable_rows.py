"""Rows of HumanEval that no program could pass here are told apart from wrong answers."""

from __future__ import annotations

import pytest

from workloads.sandbox.runner import SandboxResult, UntrustedProgram, run_program
from workloads.scoring import score_all

ROW = {
    "task_id": "T/0",
    "prompt": 'def half(x):\n    """Half of x."""\n',
    "entry_point": "half",
    "canonical_solution": "    return x / 2\n",
    "test": "def check(f):\n    assert f(4) == 2\n",
}
RIGHT, WRONG, BROKEN = ROW["canonical_solution"], "    return x\n", "    return (\n"
NO_MODULE = "ModuleNotFoundError: No module named 'no_such_module'"
TESTS = f"tests cannot run: {NO_MODULE}"


def lacking(**fields: str) -> dict[str, str]:
    return ROW | {key: f"import no_such_module\n{ROW[key]}{text}" for key, text in fields.items()}


UNUSABLE = {
    "tests import what is not there": (lacking(test=""), TESTS),
    "tests import it later": (
        ROW | {"test": "def check(f):\n    f(4)\n    import no_such_module\n"},
        TESTS,
    ),
    "tests are no Python": (ROW | {"test": "def check(f:\n"}, "tests cannot run: SyntaxError: "),
    "tests fail before they call": (
        ROW | {"test": "def check(f):\n    expected[0] == f(4)\n"},
        "tests cannot run: NameError: name 'expected'",
    ),
    "the prompt imports it": (lacking(prompt=""), f"prompt cannot run: {NO_MODULE}"),
}


@pytest.mark.parametrize(("row", "why"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_no_answer_to_such_a_row_has_a_score(row: dict[str, str], why: str) -> None:
    """Neither one that is right nor those that are wrong: their mean would say 0."""
    unscored: dict[int, str] = {}
    answers = [RIGHT, WRONG, BROKEN, RIGHT]
    scores = score_all("humaneval", [row, row, row, ROW], answers, unscored=unscored)
    assert scores == [{}, {}, {}, {"pass_at_1": 1.0}]
    assert [*unscored] == [0, 1, 2]
    assert all(told.startswith(f"the row's {why}") for told in unscored.values())


@pytest.mark.parametrize(
    "answer",
    [
        "    import no_such_module\n    return x / 2\n",
        "    raise ImportError('No module')\n",
        "    raise SyntaxError('x', ('<tests>', 1, 1, '', 1, 1))\n",
        "    return y\n",
        "    raise SystemExit\n",
    ],
)
def test_what_the_program_raises_is_its_own_fault(answer: str) -> None:
    unscored: dict[int, str] = {}
    assert score_all("humaneval", [ROW], [answer], unscored=unscored) == [{"pass_at_1": 0.0}]
    assert unscored == {}


@pytest.mark.parametrize("program", ["raise ImportError", "import no_such_module", "f = 1", ""])
def test_a_program_without_its_function_says_nothing_of_the_tests(program: str) -> None:
    result = run_program(UntrustedProgram(program, "assert f(1) == 2", ("f",)), timeout_s=60)
    assert not result.passed
    assert not result.of_tests


def test_what_tests_build_on_is_theirs() -> None:
    given = UntrustedProgram("def f(): pass", "f()", ("f",), given="import no_such_module")
    assert run_program(given, timeout_s=60) == SandboxResult(False, NO_MODULE, of_tests=True)
