from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import UserError
from workloads.completions import stub
from workloads.sandbox import humaneval
from workloads.sandbox.humaneval import humaneval_program
from workloads.sandbox.runner import SandboxResult, UntrustedProgram, run_programs
from workloads.scoring import (
    exact_match,
    exact_match_flexible,
    final_number,
    rouge_l,
    score_all,
    thinks_from_the_start,
)

Rows = list[dict[str, str]]

NUMBERS = {
    "#### 42": "42",
    "6 * 7 = <<6*7=42>>42\n#### 42": "42",
    "#### 1,042": "1042",
    "#### $1,234,567.50": "1234567.50",
    "#### -5": "-5",
    "#### \u22125": "-5",
    "#### 42.0": "42",
    "####\n42": "42",
    "The answer is 42.\n\nQuestion: What is 5 + 5?\nThe answer is 10.": "42",
    "#### 40 + 2 = 42 eggs": "42",
    "#### none, so 7 remain": "7",
    "#### 42\n\nAnother one:\n#### 10": "42",
    "The answer is 42.": "42",
    "The answer is: $42": "42",
    "The answer is 3, I thought.\nNo, the answer is 42, not 5": "42",
    "The final answer is 40 + 2 = 42 apples in 3 days.": "42",
    "So the answer is\n\n42": "42",
    r"Thus \boxed{42}, from 3 boxes.": "42",
    r"$\boxed{\$1{,}042}$": "1042",
    r"\boxed{42 \text{ apples}}": "42",
    r"First \boxed{1}, then \boxed{2}": "2",
    "**42**": "42",
    "_42_": "42",
    "She pays 3 x 14 = 42": "42",
    "45-3=42": "42",
    "10-3": "3",
    "It fell to -3": "-3",
    "about .5": "0.5",
    "42%": "42",
    "#### Step 1: eggs\n16-3=13\n#### Step 2\n9*2=18\n#### 18": "18",
    "#### 1. Eggs\n16-3=13\n#### 2. Dollars\n#### 18": "18",
    "#### Step 1: eggs\n9*2=18": "18",
    "#### **18**\n#### **19**": "19",
    "####18": "18",
    "#### Final answer\n18": "18",
    "Sure.\nProblem: Janet has 16 eggs.\nSolution: 18\n#### 18": "18",
    "Problem: 16 eggs.\nQuestion: How much?\nThe answer is 18.\nQ: And 5?\n#### 10": "18",
    "Sure.\nProblem: Janet has 16 eggs, and sells 9.": "9",
    "So 9 * 2 = 18.\nProblem: Another has 16 eggs.\n#### 16": "18",
    "The answer is 18 (with n = 4).": "18",
    "The answer is 18 (since 9 * 2 = 18, 3 + 4 = 7).": "18",
    "The answer is 18. Check: 3 + 4 = 7": "18",
    "The answer is 40 eggs + 2 eggs = 42 eggs": "42",
    "The answer is x = 42": "42",
    "The answer is $40 (house) + $2 (phone) = $42": "42",
    "The answer is, by 3 on both sides, p = 42 apples": "42",
    "The answer is 3x = 126, so x = 42": "42",
    "The answer is 84/2 = 2A/2 or 42 = A": "42",
    r"\boxed{70\,000}": "70000",
    r"\boxed{1\,234\,567}": "1234567",
    r"1,\!234 and\ 5": "5",
    r"so 1,\!800": "1800",
    "Answer: 18\n\nCheck: 9*2 = 18, 3+4 = 7.": "18",
    "Final Answer: 18 eggs per 2 days": "18",
    "**Answer:** $1,234.50.\n\nIs there 1 more?": "1234.50",
    "**Answer**: 18\n\nOr 2?": "18",
    "Answer:\n18\n\nOr 2?": "18",
    "Answer: 16 - 3 = 13\n13 - 4 = 9": "9",
    "Answer: 16 eggs are laid. 3 are eaten.\nSo 13 remain.": "13",
    "Answer: 1. Count the eggs\n16": "16",
    "H2O": None,
    "no idea": None,
    "": None,
    "####": None,
}


@pytest.mark.parametrize(("text", "number"), NUMBERS.items())
def test_final_number(text: str, number: str | None) -> None:
    assert final_number(text) == (None if number is None else Decimal(number))


def test_flexible_match_compares_numbers_not_text() -> None:
    assert exact_match_flexible("#### 1,000", "It is 1000.00 dollars") == 1.0
    assert exact_match_flexible("#### 1,000", "It is 100") == 0.0
    assert exact_match_flexible("#### 0", "The answer is 0") == 1.0
    assert exact_match_flexible("#### 0", "") == 0.0
    assert exact_match_flexible("none", "no idea") == 0.0


PIECES = st.sampled_from(
    [
        *("#### 18", "####18", "#### 1,8", "#### 18.0", "#### 18/day", "#### -7", "#### **9**"),
        *("#### Step 1: eggs", "#### 1. Eggs", "\nQuestion: 16?", "\nProblem: 5 eggs", "\nQ: "),
        *("18", "7", " = ", "\n", "\\boxed{3}", "The answer is 4", "Answer: 5", "(n = 4)", "."),
        *("#### 40 + 2 = 42", "eggs", "\u2212", "$"),
    ]
)


@given(st.lists(PIECES).map("".join), st.sampled_from(["18", "40", "1", "-7"]))
def test_flexible_match_is_right_where_the_official_one_is(text: str, number: str) -> None:
    label = f"So it is.\n#### {number}"
    assert exact_match_flexible(label, text) >= exact_match(label, text)


@pytest.mark.parametrize("form", ["{}", "The answer is {}.", "**Answer:** {}", "#### **{}**"])
def test_forms_of_real_labels(shared_data: Path, form: str) -> None:
    rows = _lines(shared_data / "gsm8k" / "test.jsonl")
    for row in rows:
        worked, _, number = row["answer"].partition("\n#### ")
        assert exact_match_flexible(row["answer"], f"{worked}\n{form.format(number)}") == 1.0


def test_what_was_thought_does_not_count() -> None:
    thought = "<think>maybe\n#### 5</think>no:\n#### 6\n</think>\n"
    found = score_all("gsm8k", [{"answer": "#### 4"}], [f"{thought}#### 4"])[0]
    assert found == {"exact_match": 1.0, "exact_match_flexible": 1.0}
    found = score_all("gsm8k", [{"answer": "#### 6"}], [f"{thought}None."])[0]
    assert found == {"exact_match": 0.0, "exact_match_flexible": 0.0}
    assert score_all("xsum", [{"summary": "a b"}], ["<think>c d</think>a b"]) == [
        {"rouge_l_to_label": 1.0}
    ]


CUT_OFF = {
    "thought": ("<think>so far\n#### 4", False),
    "second thought": ("<think>x</think>#### 4\n<think>or\n#### 4", False),
    "thought that the prompt begins": ("so far\n#### 4", True),
}


@pytest.mark.parametrize(("text", "thinks"), CUT_OFF.values(), ids=CUT_OFF.keys())
def test_a_thought_that_was_cut_off_is_no_answer(text: str, thinks: bool) -> None:
    (found,) = score_all("gsm8k", [{"answer": "#### 4"}], [text], thinks=[thinks])
    assert found == {"exact_match": 0.0, "exact_match_flexible": 0.0}


def test_an_answer_behind_a_thought_that_the_prompt_begins_counts() -> None:
    rows, texts = [{"answer": "#### 4"}] * 2, ["#### 5\n</think>#### 4", "#### 4"]
    scores = score_all("gsm8k", rows, texts, thinks=[True, False])
    assert [found["exact_match"] for found in scores] == [1.0, 1.0]
    assert thinks_from_the_start("Why?<|assistant|>\n<think>\n")
    assert not thinks_from_the_start("Why?<|assistant|>\n<think>\n\n</think>\n\n")


OFFICIAL = {
    "#### 1000": 1.0,
    "so 7 + 993 = 1000\n#### 1,000\n": 1.0,
    "#### 1,000\nQuestion: 5 + 5?\n#### 10": 1.0,
    "#### 1000 dollars": 1.0,
    "The answer is 1000": 0.0,
    "1000": 0.0,
    "####1000": 0.0,
    "####  1000": 0.0,
    "#### $1000": 0.0,
    "#### 1000.": 0.0,
    "#### 1000.00": 0.0,
    "#### 10\n#### 1000": 0.0,
    "#### -1000": 0.0,
    "": 0.0,
}


@pytest.mark.parametrize(("text", "found"), OFFICIAL.items())
def test_exact_match_is_the_official_one(text: str, found: float) -> None:
    assert exact_match("#### 1,000", text) == found


def test_answers_without_a_mark_match_no_reference_without_one() -> None:
    assert exact_match("1000", "1000") == 0.0
    assert exact_match("none", "no idea") == 0.0


def test_rouge_l_is_the_f1_of_the_longest_common_subsequence() -> None:
    """Three of four words against three of five: P = 3/5, R = 3/4, F1 = 2/3."""
    assert rouge_l("the cat sat down", "the cat then sat there") == pytest.approx(2 / 3)
    assert rouge_l("The cats sat.", "the cat SAT") == 1.0
    assert rouge_l("a b\nc d", "c d\na b") == pytest.approx(0.5)
    assert rouge_l("a b", "") == 0.0
    assert rouge_l("a b", "...") == 0.0


def test_unknown_workload_is_one_line() -> None:
    with pytest.raises(UserError, match="unknown workload 'gsm9k'; did you mean 'gsm8k'"):
        score_all("gsm9k", [{}], [""])


def test_scores_carry_the_metrics_name() -> None:
    found = score_all("gsm8k", [{"answer": "#### 4"}], ["4"])[0]
    assert found == {"exact_match": 0.0, "exact_match_flexible": 1.0}
    assert score_all("xsum", [{"summary": "a b"}], ["a b"]) == [{"rouge_l_to_label": 1.0}]
    assert score_all("cnn_dailymail", [{"highlights": "a b"}], ["c"]) == [{"rouge_l_to_label": 0.0}]


HELPED = {
    "task_id": "T/1",
    "prompt": 'def twice(x):\n    return 2 * x\n\n\ndef half(x):\n    """ Half. """\n',
    "entry_point": "half",
    "canonical_solution": "    return x / 2\n",
    "test": "def check(f):\n    assert f(twice(3)) == 3\n    assert twice(f(4)) == 4\n",
}


def test_time_limit_reaches_the_programs() -> None:
    slow = "    import time\n    time.sleep(2)\n    return x / 2\n"
    (in_time,) = score_all("humaneval", [HELPED], [slow], timeout_s=60)
    (late,) = score_all("humaneval", [HELPED], [slow], timeout_s=0.5)
    assert (in_time["pass_at_1"], late["pass_at_1"]) == (1.0, 0.0)


def test_a_program_that_passed_is_not_run_again_and_one_that_failed_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [f"{HELPED['canonical_solution']}    # once\n", "    return None\n"] * 2
    run: list[list[UntrustedProgram]] = []

    def judged(programs: list[UntrustedProgram], timeout_s: float) -> list[SandboxResult]:
        run.append(programs)
        return run_programs(programs, timeout_s=timeout_s)

    monkeypatch.setattr(humaneval, "run_programs", judged)
    monkeypatch.setattr(humaneval, "_UNUSABLE", {})
    for _ in range(2):
        scores = score_all("humaneval", [HELPED] * 4, answers)
        assert [score["pass_at_1"] for score in scores] == [1, 0, 1, 0]
    right, wrong = (humaneval_program(HELPED, answer) for answer in answers[:2])
    nothing = replace(wrong, source=stub(HELPED["prompt"], HELPED["entry_point"]))
    assert [*filter(None, run)] == [[right, wrong], [nothing], [wrong]], "a row is tried once"


def test_tests_use_the_prompts_helpers_and_not_the_answers() -> None:
    redefined = "def twice(x):\n    return x\n\n\ndef half(x):\n    return x\n"
    scores = score_all("humaneval", [HELPED] * 2, [HELPED["canonical_solution"], redefined])
    assert [s["pass_at_1"] for s in scores] == [1.0, 0.0]


def _lines(path: Path) -> Rows:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize("name", ["train", "test"])
def test_gsm8k_answers_match_themselves(shared_data: Path, name: str) -> None:
    rows = _lines(shared_data / "gsm8k" / f"{name}.jsonl")
    scores = score_all("gsm8k", rows, [row["answer"] for row in rows])
    assert all(found == {"exact_match": 1.0, "exact_match_flexible": 1.0} for found in scores)


def test_gsm8k_answers_without_their_last_line_match_flexibly_alone(shared_data: Path) -> None:
    rows = _lines(shared_data / "gsm8k" / "test.jsonl")
    scores = score_all("gsm8k", rows, [row["answer"].split("####")[0] for row in rows])
    assert sum(found["exact_match"] for found in scores) == 0
    assert sum(found["exact_match_flexible"] for found in scores) == 1283


@pytest.mark.parametrize(
    ("workload", "name", "field"),
    [("cnn_dailymail", "test_random200", "highlights"), ("xsum", "test_first500", "summary")],
)
def test_summaries_match_themselves(
    shared_data: Path, workload: str, name: str, field: str
) -> None:
    rows = _lines(shared_data / workload / f"{name}.jsonl")
    own = score_all(workload, rows, [row[field] for row in rows])
    assert all(s["rouge_l_to_label"] == pytest.approx(1.0) for s in own)
    others = score_all(workload, rows, [row[field] for row in rows[1:] + rows[:1]])
    assert sum(s["rouge_l_to_label"] for s in others) / len(rows) < 0.3
