"""Answers that are labels are compared by how many come a second: they have no tokens, and no time
between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from reports.cells import Cell
from reports.numbers import counted, interval, ratio
from reports.words.findings import extremes, place, span

OVER_REFERENCE = "throughput_ratio"
THROUGHPUT = "output_tok_per_s"
_REQUESTS = "request_per_s"
_UNCLEAR = "no clear difference"


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


def ends(cells: Iterable[Cell]) -> str:
    """``[1.49, 2.71]``: from the least repeat of the cells of `times` to the greatest; empty where
    one of them has a single repeat."""
    found = [_range(cell) for cell in _used(cells)]
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return ""
    return interval(min(low for low, _ in known), max(high for _, high in known))


def tone(cells: Iterable[Cell]) -> str:
    """Of `times`: struck through where none is valid, muted where no cell's repeats lie on one side
    of 1, as those of one repeat do not."""
    used = _used(cells)
    if are_void(used):
        return "struck"
    return "muted" * bool(used and not any(map(_is_clear, used)))


def caption(cells: Sequence[Cell]) -> str:
    """What `times` is of, over what, and what its repeats do not tell; empty without a cell to
    compare."""
    used, every = _used(cells), len(compared(cells))
    over = counted(every, "cell") if len(used) == every else f"{len(used)} of {every} cells"
    over += ", none valid" * are_void(cells)
    brackets = ", in brackets the range of the repeats" * bool(ends(cells))
    text = f"labels per second over the reference's{brackets}; {over}"
    return "; ".join(filter(None, (text, _doubt(used)))) if used else ""


def clause(cells: Sequence[Cell]) -> str:
    """How many labels come a second beside the reference; empty without a cell to compare."""
    if are_void(cells):
        return "no valid cell has a rate beside the reference's"
    used, found = _used(cells), f"{times(cells)} {ends(cells)}".rstrip()
    if not used:
        return ""
    if ends(cells) and not any(map(_is_clear, used)):
        return f"{_UNCLEAR} in labels per second: {found}"
    text = f"{times(cells)} the reference's labels per second {ends(cells)}".rstrip()
    return "; ".join(filter(None, (text, _doubt(used))))


def finding(
    cells: Sequence[Cell], name: str, costs: Mapping[int, str] = MappingProxyType({})
) -> str:
    """A sentence or two over the cells of all that are compared with the reference, whose name is
    given, and one for each whose labels are not as good; empty without a cell to compare.

    `costs`: by variant what it does to answers, empty where they are as good.
    """
    used, what = _used(cells), f"Labels per second over {name}'s:"
    if len({ratio(cell.value(OVER_REFERENCE) or 0.0) for cell in used}) == 1:
        whose = ", ".join(dict.fromkeys(cell.variant.label for cell in used))
        repeats = f", repeats in {ends(used)}" * bool(ends(used))
        what = f"Labels per second of {whose} over {name}'s{repeats}:"
    told = extremes(what, compared(cells), OVER_REFERENCE, ratio, "×", _place)
    doubt = "" if are_void(cells) else _doubt(used)
    told += f" {doubt[:1].upper()}{doubt[1:]}." * bool(doubt)
    worse = {c.variant.label: cost for c in compared(cells) if (cost := costs.get(c.variant.index))}
    return told + "".join(f" {who}:{cost[:2].lower()}{cost[2:]}" for who, cost in worse.items())


def _place(cell: Cell) -> str:
    return f"{place(cell)} {ends([cell])}".rstrip()


def _range(cell: Cell) -> tuple[float, float] | None:
    """Of its repeats; None of a single one."""
    low, high = cell.low(OVER_REFERENCE), cell.high(OVER_REFERENCE)
    return None if low is None or high is None else (low, high)


def _is_clear(cell: Cell) -> bool:
    """Whether its repeats, as they are shown, lie on one side of 1."""
    found = _range(cell)
    return found is not None and (round(found[0], 2) > 1 or round(found[1], 2) < 1)


def _doubt(used: Sequence[Cell]) -> str:
    """In how many cells the repeats do not tell which is faster."""
    alone = sum(_range(cell) is None for cell in used)
    unclear = sum(not _is_clear(cell) for cell in used) - alone
    said = ((unclear, _UNCLEAR), (alone, "one repeat: noise unknown"))
    of = f" in {{}} of {len(used)} cells" * (len(used) > 1)
    return "; ".join(f"{words}{of.format(count)}" for count, words in said if count)


def _used(cells: Iterable[Cell]) -> list[Cell]:
    every = compared(cells)
    return [cell for cell in every if cell.holds(OVER_REFERENCE)] or every
