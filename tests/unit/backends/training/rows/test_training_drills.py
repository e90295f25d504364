"""Arithmetic drills: right, in the prompt's order, and part of a mix like a workload."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backends.training.rows.batches import row_pool
from backends.training.rows.drills import SUMS, drill_prompts, drill_texts
from backends.training.rows.tokenizer import END, load_tokenizer, train_tokenizer

SIGNS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__}


def test_drills_are_worked_out_right_in_the_order_of_the_question() -> None:
    seen = set()
    for question, worked in drill_texts(300, seed=1):
        asked = question.removeprefix("Compute: ").split("; ")
        lines = worked.split("\n")
        assert [line.split(" = ")[0] for line in lines] == asked
        assert len(lines) == SUMS
        for left, sign, right, result in re.findall(r"(\d+) (.) (\d+) = (\d+)", worked):
            assert SIGNS[sign](int(left), int(right)) == int(result)
            assert sign != "/" or int(left) % int(right) == 0
            seen.add(sign)
    assert seen == set(SIGNS)


def test_drills_depend_on_their_seed_alone() -> None:
    assert list(drill_texts(5, 3)) == list(drill_texts(5, 3))
    assert list(drill_texts(5, 3)) != list(drill_texts(5, 4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(path, rows_per_workload=30)
    return path


def test_drills_take_their_share_of_a_mix(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    pool = row_pool(tokenizer, {"gsm8k": 3, "drills": 1}, 4, 0, 2)
    texts = [tokenizer.decode(example.prompt) for batch in pool for example in batch]
    assert len(texts) == 64
    assert sum("Compute: " in text for text in texts) == 16
    ((prompt, answer),) = drill_prompts(tokenizer, 1, 5)
    question, worked = next(drill_texts(1, 5))
    assert tokenizer.decode(prompt, skip_special_tokens=True) == question
    assert tokenizer.decode(answer[:-1]) == worked
    assert answer[-1] == END
