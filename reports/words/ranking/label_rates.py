"""Answers that are labels are compared by how many come a second: they have no tokens, and no time
between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reports.cells import Cell
from reports.numbers import counted, ratio
from reports.words.findings import extremes, span

OVER_REFERENCE = "throughput_ratio"
THROUGHPUT = "output_tok_per_s"
_REQUESTS = "request_per_s"


def are_labels(cell: Cell) -> bool:
    """Whether a cell's answers are labels; not known of one without an answer."""
    return cell.value(THROUGHPUT) is None is not cell.value(_REQUESTS)


def rate(cell: Cell) -> str:
    """The metric of its throughput."""
    return _REQUESTS if are_labels(cell) else THROUGHPUT


def counted_in(cells: Iterable[Cell]) -> str:
    """What their throughput is of: ``tokens``, ``labels`` or both."""
    kinds = {are_labels(cell) for cell in cells if cell.is_measured}
    return " or ".join(["tokens"] * (kinds != {True}) + ["labels"] * (True in kinds))


def compared(cells: Iterable[Cell]) -> list[Cell]:
    """The cells of labels that have a rate over the reference's. An open load's rate is its own."""
    own = [cell for cell in cells if cell.load_kind == "closed" and are_labels(cell)]
    return [cell for cell in own if cell.value(OVER_REFERENCE) is not None]


def times(cells: Iterable[Cell]) -> str:
    """``1.55 to 2.65×``, from the least to the greatest: no mean is true of several loads. Of the
    valid cells where there are any, and empty without a cell to compare."""
    words = span((cell.value(OVER_REFERENCE) or 0.0 for cell in _used(cells)), ratio)
    return f"{words}×" if words else ""


def are_void(cells: Iterable[Cell]) -> bool:
    """Whether there is a cell to compare, and none of them may be believed."""
    used = _used(cells)
    return bool(used) and not used[0].holds(OVER_REFERENCE)


def caption(cells: Sequence[Cell]) -> str:
    """What `times` is of, and over what; empty without a cell to compare."""
    used, every = _used(cells), len(compared(cells))
    over = counted(every, "cell") if len(used) == every else f"{len(used)} of {every} cells"
    text = f"labels per second over the reference's; {over}"
    return f"{text}, none valid" if are_void(cells) else text * bool(used)


def clause(cells: Sequence[Cell]) -> str:
    """How many labels come a second beside the reference; empty without a cell to compare."""
    if are_void(cells):
        return "no valid cell has a rate beside the reference's"
    return f"{found} the reference's labels per second" if (found := times(cells)) else ""


def finding(cells: Sequence[Cell], name: str) -> str:
    """A sentence over the cells of all that are compared with the reference, whose name is given;
    empty without a cell to compare."""
    what = f"Labels per second over {name}'s:"
    return extremes(what, compared(cells), OVER_REFERENCE, ratio, "×")


def _used(cells: Iterable[Cell]) -> list[Cell]:
    every = compared(cells)
    return [cell for cell in every if cell.holds(OVER_REFERENCE)] or every
