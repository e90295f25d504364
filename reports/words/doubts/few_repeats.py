"""How many speed-ups rest on so few repeats that their intervals are not what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from reports.cells import Cell
from reports.numbers import counted
from results.compare.pairing import NATIVE

_HELD = {1: "about one case of five", 2: "about nine cases of ten"}
"""How often intervals of so few repeats hold the truth where the machine drifts as much as requests
differ: the table in docs/metrics.md, by which three repeats come near enough to 95%."""
_ADVISED = 4
"""Three, and one that may be disturbed."""


def sentence(cells: Sequence[Cell]) -> str:
    """How many of the valid speed-ups (of all, where none is) rest on one repeat and on two, and
    what that makes of their intervals; empty where there are repeats enough."""
    known = list(_repeats(cells))
    valid = Counter(repeats for repeats, holds in known if holds)
    counts = valid or Counter(repeats for repeats, _ in known)
    few = [repeats for repeats in _HELD if counts[repeats]]
    if not few:
        return ""
    rest = " and ".join(
        f"{counts[n]} {'rests' if counts[n] == 1 else 'rest'} on {counted(n, 'repeat')}"
        for n in few
    )
    plain_alone = not any(c.value("speedup") for c in cells if not c.variant.is_reference)
    kind, over = "valid " * bool(valid) + "speed-up", f" over {NATIVE}" * plain_alone
    whose = f"Of {counted(counts.total(), kind)}{over} {rest}"
    if counts.total() == 1:
        whose = f"The one {kind}{over} rests on {counted(few[0], 'repeat')}"
    held = ", ".join(f"in {_HELD[n]} with {counted(n, 'repeat')}" for n in few)
    return (
        f"{whose}. Where the machine drifts between repeats as much as requests differ, an "
        f"interval holds the truth {held}, not in 95%. Three sound ones cover that: set repeats to "
        f"{_ADVISED}, or higher where some are left out."
    )


def _repeats(cells: Sequence[Cell]) -> Iterator[tuple[int, bool]]:
    """What each speed-up over the reference and over plain decoding rests on, and whether it may
    be believed."""
    own = [cell for cell in cells if not cell.variant.is_reference]
    plain_too = not any(c.variant.is_reference and c.variant.backend == NATIVE for c in cells)
    for metric in ("speedup", *["speedup_native"] * plain_too):
        for cell in own:
            repeats = cell.value(f"{metric}_repeats")
            if repeats is not None and cell.value(metric):
                yield int(repeats), cell.holds(metric)
