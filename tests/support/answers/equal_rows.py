"""What makes two bundled rows equal up to names, distractors and wording: read off the rows' text
alone, apart from the rule under test.

`python -m tests.support.answers.equal_rows` compares test rows with all that the bundled weights,
and what was fitted to them, drew (two minutes); a tenth of it is a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from itertools import islice

from backends.training.rows import seen
from workloads import bundled
from workloads.bundled.splits import chosen
from workloads.bundled.words import FIRST_NAMES, ITEMS

_WHO = re.compile(rf"\b({'|'.join(FIRST_NAMES)})\b")
_WHAT = re.compile(rf"\b({'|'.join(ITEMS)})\b")
_DISTRACTOR = re.compile(r"also has|on the table|years old|minutes to count")
_OPENINGS = {
    "groups": r"packs with|bags of \d+ \w+ each|shelves with",
    "rate": r"every (hour|day|week)| per (hour|day|week)",
    "more": r"\d+ more (than|\w+ than)",
    "fewer": r"\d+ fewer (than|\w+ than)",
    "times": r"times as many",
}


class _Names(ast.NodeTransformer):
    """Numbers the parameters and the variables of a function; drops what it says about them."""

    def __init__(self, function: ast.FunctionDef) -> None:
        known = [argument.arg for argument in function.args.args]
        stored = [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and _is_set(n)]
        self.numbers = {name: str(i) for i, name in enumerate(dict.fromkeys(known + stored))}

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self.numbers[node.arg])

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.numbers.get(node.id, node.id), node.ctx)


def _is_set(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def program(row: Mapping[str, str]) -> str:
    """The syntax tree of a function without names, annotations and docstring."""
    (function,) = ast.parse(row["prompt"] + row["canonical_solution"]).body
    assert isinstance(function, ast.FunctionDef)
    function.name, function.returns, function.body = "f", None, function.body[1:]
    return ast.dump(_Names(function).visit(function))


def problem(row: Mapping[str, str]) -> str:
    """The worked answer without names and things, how the story opens, and the needed numbers."""
    told = [s for s in re.split(r"(?<=[.?]) ", row["question"]) if not _DISTRACTOR.search(s)]
    opening = next((o for o, cue in _OPENINGS.items() if re.search(cue, " ".join(told[:2]))), "has")
    numbers = sorted(re.findall(r"\d+", " ".join(told)))
    answer = _WHAT.sub("things", _WHO.sub("one", row["answer"]))
    return "/".join([opening, *numbers, answer])


def news(row: Mapping[str, str]) -> str:
    """What is told of an article: its names are what it is about, so they stay."""
    return row["highlights"] if "highlights" in row else row["summary"]


EQUAL = {"cnn_dailymail": news, "xsum": news, "humaneval": program, "gsm8k": problem}


def main(tested: int = 2000) -> None:
    """Print the shares of equal rows of both splits: the present one, and the one by keys alone."""
    for workload, equal in EQUAL.items():
        train: set[str] = set()
        drawn = 0
        for seed, count in seen.streams(workload):
            train |= {equal(row) for row in bundled.rows(workload, "train", count, seed)}
            drawn += count
        test = [equal(row) for row in bundled.rows(workload, "test", tested)]
        rows = bundled.iter_drawn(workload, "test", 0)
        by_key = [equal(row) for subject, row in islice(rows, 10 * tested) if chosen(subject.key)]
        shares = [sum(row in train for row in own) / len(own) for own in (test, by_key)]
        print(
            f"{workload}: {drawn} train rows; of {len(test)} test rows ({len(set(test))} "
            f"different) {shares[0]:.1%} are equal to one, by keys alone {shares[1]:.1%}"
        )


if __name__ == "__main__":
    main()
