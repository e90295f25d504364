"""The one line of a folded section: its main number, and where it was found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from reports.cells import Cell
from reports.numbers import counted

NONE_HOLDS = "No cell holds."
"""Of a section all of whose numbers are void."""
LONGEST = 420
"""Characters of such a line."""


def named(cell: Cell, words: str) -> str:
    """These words of a cell, and its machine and settings where the run has several: ``gsm8k, max
    new tokens 8``."""
    return ", ".join(filter(None, (words, cell.apart)))


def place(cell: Cell) -> str:
    """``vllm on gsm8k, closed c=8``."""
    return named(cell, f"{cell.variant.label} on {cell.workload}, {cell.load}")


def sound(cells: Iterable[Cell], metric: str) -> list[Cell]:
    """The cells that have the metric and whose value may be believed."""
    return [cell for cell in cells if cell.value(metric) is not None and cell.holds(metric)]


def span(values: Iterable[float], form: Callable[[float], str]) -> str:
    """``1.20 to 3.41``, one number where both ends look the same; empty without a value."""
    found = list(values)
    if not found:
        return ""
    return " to ".join(dict.fromkeys((form(min(found)), form(max(found)))))


def extremes(
    what: str,
    cells: Sequence[Cell],
    metric: str,
    form: Callable[[float], str],
    unit: str = "",
    where: Callable[[Cell], str] = place,
    holds: Callable[[Cell, str], bool] = Cell.holds,
) -> str:
    """A sentence: ``what`` from the least value, and where that is, to the greatest, over the
    cells whose value may be believed; over all where none may, which is said. Empty without
    values. Of real runs, where there are any: replayed decisions say what they cost and no more.
    Who reads this line alone would take the ends for those of all cells: what lies beyond them
    and must not be believed is named as that.
    `holds`: whether a cell's value may be believed."""
    known = [cell for cell in cells if cell.value(metric) is not None]
    known = [cell for cell in known if not cell.variant.is_replay] or known
    used = [cell for cell in known if holds(cell, metric)] or known
    if not used:
        return ""

    def value(cell: Cell) -> float:
        return cell.value(metric) or 0.0

    def shown(number: float) -> str:
        return f"{form(number)}{unit}"

    least, most = (end(used, key=value) for end in (min, max))
    low, high = (shown(value(cell)) for cell in (least, most))
    some = len(used) < len(known)
    over = f"{counted(len(used), 'valid cell')} of {len(known)}"
    doubt = "" if holds(used[0], metric) else "; none of them valid"
    if low == high:
        text = f"{what} {high} in {over if some else counted(len(used), 'cell')}{doubt}"
    else:
        ends = f"{low} ({where(least)}) to {high} ({where(most)})"
        text = f"{what} {ends}" + f", in {over}" * some + doubt
    void = [cell for cell in known if cell not in used]
    outside = beyond(
        (value(least), value(most)), [(value(cell), where(cell)) for cell in void], shown
    )
    return f"{text}{outside}." if len(text + outside) < LONGEST - 1 else f"{text}."


def beyond(
    ends: tuple[float, float], void: Iterable[tuple[float, str]], form: Callable[[float], str]
) -> str:
    """The rest of a sentence about what is valid: what must not be believed and lies above or below
    these ends as they are shown. `void`: values, and whose each is; empty where none does."""
    found = list(void)
    said = []
    for word, own, end in (("higher", ends[1], max), ("lower", ends[0], min)):
        number, name = end(found, default=(own, ""), key=lambda one: one[0])
        if end(number, own) != own and form(number) != form(own):
            said.append(f"; {word}, but not valid: {form(number)} ({name})")
    return "".join(said)


def geometric_mean(values: Iterable[float]) -> float | None:
    """None without a value above 0."""
    logs = [math.log(value) for value in values if value > 0]
    return math.exp(sum(logs) / len(logs)) if logs else None
