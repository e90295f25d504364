"""The text of a record's field, or the one line that says what is wrong with it; and what is said
of records that are left out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import Any

from harness.core.errors import UserError
from harness.core.names import row_id
from workloads.readers import Budget

GSM8K_MARK = re.compile(r"#### (-?[0-9.,]+)")
"""A worked answer's number: ``ANS_RE`` of grade_school_math/dataset.py (Cobbe et al. 2021)."""
_NAMES_SHOWN = 10


class UnaskableError(UserError):
    """A record that is sound, and of which no prompt of text can be made."""


class EmptyFieldError(UnaskableError):
    """A field that is there and holds nothing."""


@dataclass(frozen=True, slots=True)
class Row:
    """One example: stable unique id, the data set's fields, and its difficulty.

    The difficulty's measure is `WorkloadInfo.difficulty`; only its order means something. It is 0
    where no option `mix` asks for it.
    """

    id: str
    data: Mapping[str, str]
    difficulty: float = 0.0
    place: str = field(default="", compare=False)
    """Where it stands ("FILE, line 3"); empty of rows that are made."""


@dataclass(slots=True)
class LeftOut:
    """Records that cannot be asked."""

    what: str
    """What they are called, in the plural."""
    count: int = 0
    of: int = 0
    """All that were read."""
    first: str = ""
    """Where the first stands, and what is wrong with it."""

    def __str__(self) -> str:
        """One line."""
        return f"{self.count:,} of {self.of:,} {self.what} left out; first: {self.first}"

    def add(self, why: str) -> None:
        """Count one more."""
        self.first = self.first or why
        self.count += 1

    def tell(self, workload: str, budget: Budget | None) -> None:
        """Make a remark of the budget's where there is something to say."""
        if self.count and budget is not None:
            budget.remarks.append(f"workload {workload}: {self}")


def text_of(values: Mapping[str, Any], field: str, where: str) -> str:
    """A field's text, a list of texts as lines. Raises `UserError`, which begins with `where`: for
    a field that holds nothing, or blanks alone, `EmptyFieldError`."""
    value = values.get(field)
    if value is None and field not in values:
        close = get_close_matches(field, list(values), n=1)
        there = ", ".join(map(str, islice(values, _NAMES_SHOWN)))
        near = f"nearest: '{close[0]}'" if close else f"the row has: {there or 'no fields'}"
        raise UserError(f"{where}: field '{field}' is missing ({near})")
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        value = "\n".join(value)
    if not isinstance(value, str) or not value.strip():
        got = "nothing" if value in (None, "", []) else repr(value)[:40]
        kind = EmptyFieldError if got == "nothing" or isinstance(value, str) else UserError
        raise kind(f"{where}: field '{field}': expected text, got {got}")
    return encodable(value, field, where)


def without_nan(values: Mapping[str, Any]) -> dict[str, Any]:
    """A record's fields with None for NaN, which data frames have where there is nothing."""
    return {
        key: None if isinstance(value, float) and math.isnan(value) else value
        for key, value in values.items()
    }


def encodable(text: str, field: str, where: str) -> str:
    """The text, or one line where it cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(f"{where}: field '{field}' holds half a surrogate pair") from None
    return text


def check_worked_answer(answer: str, where: str) -> None:
    """Raise `UserError`, which begins with `where`, for a GSM8K answer that names no number: no
    answer could equal it."""
    found = GSM8K_MARK.search(answer)
    if found is None or not any(map(str.isdigit, found[1])):
        end = answer.strip()[-40:]
        raise UserError(f"{where}: field 'answer': expected '#### NUMBER' at its end, got {end!r}")


def refuse_repeats_ids(places: Mapping[str, str], field: str = "id") -> None:
    """Raise `UserError` for a row that is called as the repeats of another are: answers to it would
    be held against the other's. `places`: where each stands, by the ids in `field`."""
    for identity, where in places.items():
        if (row := row_id(identity, places)) != identity:
            raise UserError(
                f"{where}: field '{field}': {identity!r} is what a repeat of {row!r} is called "
                f"({places[row]}); expected an id without '#{identity.rpartition('#')[2]}'"
            )
