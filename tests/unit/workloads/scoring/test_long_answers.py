"""Answers may be anything: reading the number out of a long one takes time in its length alone."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from workloads.scoring import final_number

ROOT = Path(__file__).resolve().parents[4]
FAR_TOO_LONG_S = 120
"""Where time grew with the square of the length these took hours."""
LONG = {
    "blanks before a sign": '"answer: 5" + " " * 200_000 + "="',
    "many answers in one line": '"answer: 1 " * 20_000 + "="',
    "line breaks": '"answer is" + "\\n" * 200_000',
    "blanks alone": '"answer" + " " * 200_000',
    "stars": '"answer" + "*" * 200_000 + "answer: 1." + "*" * 200_000',
    "marks": '"#" * 200_000 + "1." + " " * 200_000',
    "digits": '"answer: " + "1" * 4_000 + "." + " " * 200_000 + ";"',
    "questions": '"Q\\n" * 100_000 + "5\\n" + "Q \\n" * 100_000',
    "commas": '"1" + "," * 200_000 + "1"',
    "equals": '"#### 1 " + "= " * 100_000',
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_a_long_answer_comes_to_an_end(text: str) -> None:
    code = f"from workloads.scoring import final_number; final_number({text})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=FAR_TOO_LONG_S)


def test_blanks_behind_an_answer_are_no_part_of_it() -> None:
    text = f"Answer: 18 eggs{' ' * 5_000}\n\nOr 2?"
    assert final_number(text) == Decimal(18)
