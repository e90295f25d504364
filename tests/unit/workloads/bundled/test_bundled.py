"""The bundled rows: schemas, splits, determinism, correctness and variety."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from workloads import bundled
from workloads.bundled.arithmetic import Story, _depends
from workloads.bundled.draw import Draw
from workloads.bundled.splits import Split
from workloads.bundled.words import FIRST_NAMES, ITEMS

FIELDS = {
    "cnn_dailymail": {"article", "highlights", "id"},
    "xsum": {"document", "summary", "id"},
    "humaneval": {"task_id", "prompt", "entry_point", "canonical_solution", "test"},
    "gsm8k": {"question", "answer"},
}
WORKLOADS = sorted(FIELDS)
Rows = tuple[dict[str, str], ...]
STEP = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


@cache
def rows_of(workload: str, split: Split) -> Rows:
    """Two thousand train rows or 300 test rows, drawn once for all tests."""
    return tuple(bundled.rows(workload, split, 2000 if split == "train" else 300, seed=5))


@pytest.mark.parametrize("workload", WORKLOADS)
def test_rows_have_exactly_the_hubs_fields_filled(workload: str) -> None:
    for row in rows_of(workload, "test"):
        assert set(row) == FIELDS[workload]
        assert all(isinstance(value, str) and value.strip() for value in row.values())


def test_a_word_problem_keeps_its_split_whoever_it_is_about() -> None:
    """Key and form hold moves and numbers; with names in them, a renamed copy could leak."""
    for number in range(300):
        subject, row = bundled.GENERATORS["gsm8k"](Draw(f"renamed/{number}"))
        words = set(re.findall(r"[A-Za-z]+", subject.key + subject.form))
        assert not words & {*FIRST_NAMES, *ITEMS}
        assert all(n in subject.key for n in re.findall(r"\d+", row["question"]))


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_seed_gives_the_same_rows_and_another_seed_gives_others(workload: str) -> None:
    first = bundled.rows(workload, "train", 30, seed=3)
    assert first == list(islice(bundled.iter_rows(workload, "train", 3), 30))
    assert first[:10] == bundled.rows(workload, "train", 10, seed=3)
    other = bundled.rows(workload, "train", 30, seed=4)
    assert not {json.dumps(r) for r in first} & {json.dumps(r) for r in other}


PROGRAM = """
import hashlib, json
from workloads.bundled import GENERATORS, rows
text = json.dumps([rows(w, s, 40, 7) for w in sorted(GENERATORS) for s in ("train", "test")])
print(hashlib.sha256(text.encode()).hexdigest())
"""


def test_rows_are_the_same_in_every_process() -> None:
    """Set order depends on PYTHONHASHSEED; a generator that iterates over a set would differ."""
    digests = set()
    for hash_seed in ("0", "12345"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path.cwd())}
        command = [sys.executable, "-c", PROGRAM]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        digests.add(run.stdout.strip())
    assert len(digests) == 1


def test_the_demo_models_training_rows_have_not_changed() -> None:
    """The committed weights were trained on exactly these rows; changing them voids the card."""
    text = json.dumps([bundled.rows(w, "train", 50, 7) for w in WORKLOADS])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "d912ec9d9c2ae589"


def test_canonical_solutions_pass_their_tests_and_broken_ones_do_not() -> None:
    caught = 0
    rows = rows_of("humaneval", "test")
    for row in rows:
        head = row["prompt"] + row["canonical_solution"] + row["test"]
        exec(f"{head}\ncheck({row['entry_point']})", {})
        broken = f"{row['prompt']}    return None\n{row['test']}\ncheck({row['entry_point']})"
        try:
            exec(broken, {})
        except AssertionError:
            caught += 1
    assert caught == len(rows)


def test_solutions_continue_the_prompt_and_its_examples_hold() -> None:
    shown = 0
    for row in rows_of("humaneval", "test"):
        assert row["prompt"].endswith('"""\n')
        assert row["canonical_solution"].startswith("    ")
        scope: dict[str, object] = {}
        exec(row["prompt"] + row["canonical_solution"], scope)
        example = re.search(r">>> (.+)\n    (.+)\n", row["prompt"])
        if example:
            shown += 1
            assert eval(example[1], scope) == ast.literal_eval(example[2])
    assert 130 < shown < 230


def test_worked_answers_compute_right_and_end_in_the_last_result() -> None:
    signs = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__floordiv__}
    for row in rows_of("gsm8k", "test"):
        steps = [(int(a), s, int(b), int(c)) for a, s, b, c in STEP.findall(row["answer"])]
        assert steps
        for left, sign, right, result in steps:
            assert signs[sign](left, right) == result
            assert sign != "/" or left % right == 0
            assert 0 <= result <= 400
        *_, last = row["answer"].split("\n")
        assert last == f"#### {steps[-1][3]}"


@pytest.mark.parametrize(("value", "result"), [(39, 49), (40, 50), (41, 40)])
def test_a_condition_is_met_by_more_and_not_by_as_many(value: int, result: int) -> None:
    class ToldDraw(Draw):
        """Limit 40, ten more, one fewer."""

        def integer(self, low: int, high: int) -> int:
            return {(5, 90): 40, (2, 40): 10, (1, 4): 1}.get((low, high), low)

    story = Story(ToldDraw("told"), "Ada", "Ben", "figs", value)
    _depends(story)
    assert story.value == result
    assert "more than 40 figs" in story.told[0]


def test_every_step_starts_from_the_question_or_from_an_earlier_result() -> None:
    """No number falls from the sky; "half", "doubles" and "triples" stand for 2 and 3."""
    for row in rows_of("gsm8k", "test"):
        known = {int(n) for n in re.findall(r"\d+", row["question"])} | {2, 3}
        for left, _, right, result in STEP.findall(row["answer"]):
            assert {int(left), int(right)} <= known
            known.add(int(result))


@pytest.mark.parametrize(
    ("workload", "article", "label"),
    [("cnn_dailymail", "article", "highlights"), ("xsum", "document", "summary")],
)
def test_summaries_take_their_names_and_numbers_from_the_article(
    workload: str, article: str, label: str
) -> None:
    for row in rows_of(workload, "test"):
        said = set(re.findall(r"\d+|[A-Z]\w+", row[article]))
        for line in row[label].split("\n"):
            names = re.findall(r"(?<=\s)[A-Z]\w+|\d+", line)
            assert set(names) <= said, line


def test_highlights_are_lines_and_xsum_summaries_one_sentence() -> None:
    for row in rows_of("cnn_dailymail", "test"):
        lines = row["highlights"].split("\n")
        assert len(lines) == 3
        assert all(line.endswith(".") for line in lines)
    for row in rows_of("xsum", "test"):
        assert row["summary"].count(".") == 1
        assert "\n" not in row["summary"]


def test_who_won_follows_from_both_scores() -> None:
    """The winner stands first in the lead about as often as second, so it cannot be guessed."""
    first = total = 0
    for row in rows_of("cnn_dailymail", "train"):
        match = re.match(r"(\w+) beats (\w+) in", row["highlights"])
        if not match:
            continue
        winner, loser = match.groups()
        said = r"(\w+) (?:scored|got) (\d+)(?: points,)?(?: and)? (\w+) (\d+)"
        scores = re.search(said, row["article"])
        assert scores
        points = {scores[1]: int(scores[2]), scores[3]: int(scores[4])}
        assert points[winner] > points[loser]
        total += 1
        first += row["article"].index(winner) < row["article"].index(loser)
    assert total > 70
    assert 0.35 < first / total < 0.65


def test_variety() -> None:
    """Hundreds of program and problem shapes, thousands of names: rows cannot be memorised."""
    programs = {r["canonical_solution"] for r in rows_of("humaneval", "train")}
    blanked = {re.sub(r"\d+|'.'", "k", body) for body in programs}
    assert len(programs) > 1800
    assert len(blanked) > 800
    problems = rows_of("gsm8k", "train")
    shapes = {" ".join(re.findall(r" ([-+*/]) ", r["answer"])) for r in problems}
    assert len({r["question"] for r in problems}) == len(problems)
    assert len(shapes) > 150
    articles = rows_of("xsum", "train")
    names = {n for r in articles for n in re.findall(r"[A-Z]\w+ [A-Z]\w+", r["document"])}
    assert len(names) > 4000


def test_there_are_easy_and_hard_rows() -> None:
    steps = Counter(r["answer"].count(" = ") for r in rows_of("gsm8k", "train"))
    assert {1, 2, 3, 4, 5, 6} <= set(steps)
    assert min(steps[n] for n in (1, 2, 3, 4, 5)) > 80
    lines = Counter(r["canonical_solution"].count("\n") for r in rows_of("humaneval", "train"))
    assert {1, 3, 4, 5} <= set(lines)
    lengths = [len(r["article"].split()) for r in rows_of("cnn_dailymail", "train")]
    assert min(lengths) < 40
    assert max(lengths) > 110


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="'train' or 'test'"):
        bundled.iter_rows("gsm8k", "dev")  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        bundled.iter_rows("gsm9k", "test")


def test_draws_stay_in_range_and_reach_both_ends() -> None:
    draw = Draw("ends")
    assert {draw.integer(3, 5) for _ in range(200)} == {3, 4, 5}
    assert sorted(draw.pick("abcd", 4)) == list("abcd")
    assert {draw.choose("xy") for _ in range(50)} == {"x", "y"}
    assert re.fullmatch(r"[0-9a-f]{12}", draw.hexadecimal(12))
