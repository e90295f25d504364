"""The reasons against a cell's trials, counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from results.compare.reasons import CELL_NOT_VALID, slug


def by_slug(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, str]]:
    """Slug -> trials that have the reason, and its text in the first of them; `rows`: one per
    trial of a cell."""
    found: dict[str, tuple[int, str]] = {}
    for row in rows:
        told = {slug(reason): reason for reason in row["invalid_reasons"]}
        # in a row of its own a cell has the reasons of all its repeats
        told.pop(CELL_NOT_VALID, None)
        for name, text in told.items():
            count, first = found.get(name, (0, text))
            found[name] = (count + 1, first)
    return found


def stands_alone(row: Mapping[str, Any]) -> bool:
    """Of a trial that is not valid: what compares it with nothing may be believed."""
    return not row["valid"] and "output_tok_per_s" not in row["void_metrics"]
