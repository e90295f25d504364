"""A figure of a paper beside ours, as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """`paper` is what the paper says, `why` what was assumed and why ours differs.

    at: what the values are over, as words; `series` has one value for each, None where there is
        none. `ratios` are pairs of names in it. `notes` say why there is none.
    """

    name: str
    title: str
    paper: str
    why: str
    at_label: str
    at: Sequence[str]
    unit: str
    digits: int
    series: Mapping[str, Values]
    ratios: Sequence[tuple[str, str]]
    notes: Sequence[str]
    provenance: str

    def quotients(self) -> dict[str, Values]:
        """One series over another at each place; None where either has no value or the other 0."""
        return {
            f"{one} over {other}": [
                a / b if a is not None and b else None
                for a, b in zip(self.series[one], self.series[other], strict=True)
            ]
            for one, other in self.ratios
        }

    def ours(self) -> str:
        """Our numbers in a sentence: each ratio from the least to the most, or each series."""
        told = self.quotients()
        digits = 2 if told else self.digits
        return "; ".join(
            f"{name} {_span(values, digits)}" for name, values in (told or self.series).items()
        )

    def rows(self) -> list[list[str]]:
        """Of its table: each series and each ratio, its name first."""
        told = [(name, values, self.digits) for name, values in self.series.items()]
        told += [(name, values, 2) for name, values in self.quotients().items()]
        return [
            [name, *(shown(value, digits) for value in values)] for name, values, digits in told
        ]

    def to_json(self) -> dict[str, Any]:
        """Of the file `figures.json`."""
        return {**asdict(self), "ours": self.ours(), "over": self.quotients()}


def shown(value: float | None, digits: int) -> str:
    """A number of a table."""
    return "–" if value is None else f"{value:,.{digits}f}"


def _span(values: Values, digits: int) -> str:
    found = [value for value in values if value is not None]
    if not found:
        return "none"
    least, most = shown(min(found), digits), shown(max(found), digits)
    return least if least == most else f"{least} to {most}"
