"""A figure of the paper beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

WORDS = Path(__file__).with_name("words.yaml")
Series = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """`theirs` is what the paper says, `ours` the same number here, and `why` the difference.

    series: by name the value at each of `at`, None where there is none.
    """

    name: str
    title: str
    theirs: str
    ours: str
    why: str
    at_label: str
    at: Sequence[str]
    unit: str
    series: Series
    digits: int
    provenance: str

    def shown(self, value: float | None) -> str:
        """A number of `series` for the table."""
        return "–" if value is None else f"{value:,.{self.digits}f}"


def beside(
    name: str,
    ours: str,
    at: tuple[str, Sequence[Any]],
    unit: str,
    series: Series,
    digits: int = 0,
    provenance: str = "simulation",
    facts: Mapping[str, Any] | None = None,
) -> PaperFigure:
    """A figure with its words, which `facts` fill in; `at` is what it is over, and where."""
    told = {key: text.format(**(facts or {})) for key, text in _words()[name].items()}
    label, places = at
    where = [str(place) for place in places]
    return PaperFigure(
        name,
        told["title"],
        told["theirs"],
        ours,
        told["why"],
        label,
        where,
        unit,
        series,
        digits,
        provenance,
    )


@cache
def _words() -> Mapping[str, Mapping[str, str]]:
    found: Mapping[str, Mapping[str, str]] = yaml.safe_load(WORDS.read_text(encoding="utf-8"))
    return found


def over(these: Sequence[float], those: Sequence[float]) -> list[float]:
    """Ratios, one by one."""
    return [one / other for one, other in zip(these, those, strict=True)]


def span(ratios: Sequence[float]) -> str:
    """From the least to the most."""
    return f"{min(ratios):.2f} to {max(ratios):.2f}"
