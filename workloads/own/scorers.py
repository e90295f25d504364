"""How answers to own prompts are scored; a row says which scorer is its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from harness.core import rouge
from harness.core.errors import UserError

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
    rows that are not scored."""
    return [_score(row, text) for row, text in zip(rows, texts, strict=True)]


def _score(row: Mapping[str, str], text: str) -> dict[str, float]:
    scorer, answer = row.get("scorer", NONE), row.get("answer", "")
    if scorer == NONE:
        return {}
    if scorer == "exact":
        value = float(text.strip() == answer.strip())
    elif scorer == "contains":
        value = float(_folded(answer) in _folded(text))
    elif scorer == "regex":
        value = float(re.search(answer, text) is not None)
    else:
        value = rouge.rouge_l(answer, text) if rouge.words(answer) else 0.0
    return {SCORERS[scorer]: value}


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
