"""The text of a record's field, or the one line that says what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any

from harness.core.errors import UserError

_NAMES_SHOWN = 10


def text_of(values: Mapping[str, Any], field: str, where: str) -> str:
    """A field's text, a list of texts as lines. Raises `UserError`, which begins with `where`."""
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
        raise UserError(f"{where}: field '{field}': expected text, got {got}")
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
