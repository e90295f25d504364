"""How answers to own prompts are scored; a row says which scorer is its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from harness.core import rouge
from harness.core.errors import UserError
from workloads.own.patterns import search_all

NONE = "none"
SCORERS: Mapping[str, str] = {
    NONE: "",
    "exact": "equals_answer",
    "contains": "contains_answer",
    "regex": "matches_pattern",
    "rouge_l": "rouge_l_to_label",
}
"""By scorer the metric that it gives."""


def is_scorer(value: Any) -> bool:
    """Whether a value, of whatever type, names a scorer."""
    return isinstance(value, str) and value in SCORERS


def check_answer(scorer: str, answer: str | None, values: Mapping[str, Any], where: str) -> None:
    """Raise `UserError`, which begins with `where`, for a row without the answer that its scorer
    compares with, and for an answer that is no regular expression where one is asked for."""
    if scorer == NONE:
        return
    if answer is None:
        others = [str(name) for name in values if name != "answer"]
        close = get_close_matches("answer", others, n=1)
        near = f" (found '{close[0]}')" if close else ""
        raise UserError(f"{where}: field 'answer' is missing; scorer '{scorer}' needs it{near}")
    if scorer == "regex":
        try:
            re.compile(answer)
        except (re.error, RecursionError, OverflowError) as error:
            raise UserError(
                f"{where}: field 'answer': expected a regular expression, got {answer[:40]!r}: "
                f"{error}"
            ) from None


def score_all(rows: Sequence[Mapping[str, str]], texts: Sequence[str]) -> list[dict[str, float]]:
    """By answer the score of its row's scorer, from 0 to 1, under the metric's name; nothing for
    rows that are not scored, and where the search for a pattern takes too long (`search_all`)."""
    pairs = list(zip(rows, texts, strict=True))
    places = [place for place, row in enumerate(rows) if row.get("scorer") == "regex"]
    searched = search_all([(rows[place].get("answer", ""), texts[place]) for place in places])
    matches = dict(zip(places, searched, strict=True))
    found = (_score(row, text, matches.get(place)) for place, (row, text) in enumerate(pairs))
    return [
        {} if value is None else {SCORERS[row["scorer"]]: value}
        for row, value in zip(rows, found, strict=True)
    ]


def _score(row: Mapping[str, str], text: str, is_match: bool | None) -> float | None:
    """`is_match`: whether the row's pattern is found, where it has one and that is known."""
    scorer, answer = row.get("scorer", NONE), row.get("answer", "")
    if scorer == NONE:
        return None
    if scorer == "exact":
        return float(text.strip() == answer.strip())
    if scorer == "contains":
        return float(_folded(answer) in _folded(text))
    if scorer == "regex":
        return None if is_match is None else float(is_match)
    return rouge.rouge_l(answer, text) if rouge.words(answer) else 0.0


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
