"""Why a number is doubted, and what would settle a speed-up whose interval holds 1."""

from __future__ import annotations

from collections.abc import Sequence

from reports.cells import Cell
from reports.numbers import counted
from results import registry
from results.compare.reasons import LENGTH_MISMATCH

UNEQUAL = "unequal lengths"
UNEQUAL_SHORT = "≠ lengths"
"""Where there is little room: at the bar of a figure."""
_UNEQUAL_WORK = frozenset(registry.unequal_work())


def against(cell: Cell, *metrics: str) -> str:
    """Why these numbers of a cell are not to be believed, in few words; empty where they are. A
    cell that is valid may still have answers of other lengths than the reference's."""
    void = [metric for metric in metrics if not cell.holds(metric)]
    if not void:
        return ""
    lengths = (
        cell.stands_alone and LENGTH_MISMATCH in cell.reasons and _UNEQUAL_WORK.issuperset(void)
    )
    return UNEQUAL if lengths else "not valid"


def is_doubtful(cell: Cell) -> bool:
    """Whether the cell has a sound speed-up that may be on either side of 1."""
    low, high = cell.low("speedup"), cell.high("speedup")
    if low is None or high is None or not cell.holds("speedup"):
        return False
    return low <= 1 <= high


def remedy(cell: Cell) -> str:
    """What a doubtful cell lacks, beside its number; empty for any other."""
    if not is_doubtful(cell):
        return ""
    if cell.value("speedup_repeats") == 1:
        return "repeat it to tell"
    more = cell.value("speedup_more_repeats")
    if more is None:
        return "no difference to be told by repeats"
    return f"{counted(int(more), 'more repeat')} would tell"


def sentences(cells: Sequence[Cell]) -> list[str]:
    """How many cells are in doubt, and how many repeats would settle how many of them."""
    doubtful = [cell for cell in cells if is_doubtful(cell)]
    if not doubtful:
        return []
    over = next((c.variant.label for c in cells if c.variant.is_reference), "the reference")
    every = sum(cell.low("speedup") is not None and cell.holds("speedup") for cell in cells)
    begin = (
        f"In {len(doubtful)} of {counted(every, 'valid cell')} the interval of the "
        f"speed-up over {over} holds 1: no difference is shown there."
    )
    known = [n for c in doubtful if (n := c.value("speedup_more_repeats")) is not None]
    if not known:
        if all(cell.value("speedup_repeats") == 1 for cell in doubtful):
            return [f"{begin} One repeat does not tell what more of them would show."]
        return [f"{begin} More repeats of the same requests would not change that."]
    few, most = int(min(known)), int(max(known))
    span = str(few) if few == most else f"{few} to {most}"
    settled = f"{len(known)} of them" if len(known) < len(doubtful) else "them"
    rest = (
        f"; in the other {len(doubtful) - len(known)} the two are too close, or requests differ "
        "too much, for repeats to tell"
    )
    return [
        f"{begin} If the differences are those found, {span} more "
        f"{'repeat' if most == 1 else 'repeats'} would settle {settled} in 4 of 5 cases"
        f"{rest * (len(known) < len(doubtful))}."
    ]
