"""One backend held against another on the same workloads and loads, request by request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reports.cells import Cell
from reports.collect import Samples
from reports.variants import Variant
from reports.words.speed import Speed, speed_of
from results.compare.rivals import rival_effects


class Duel(NamedTuple):
    """A winner held against one other."""

    other: Variant
    found: Speed | None
    """See `held_against`."""

    @property
    def is_won(self) -> bool:
        """Whether the winner is shown to be faster."""
        return self.found is not None and self.found.is_faster

    @property
    def times(self) -> str:
        """``1.10× [1.05, 1.15]``; empty where nothing can be said."""
        return self.found.times if self.found else ""

    @property
    def why_open(self) -> str:
        """Why it is not won."""
        if self.found is None:
            return "no common repeats to compare"
        return "slower" if self.found.is_slower else self.found.why_open or "no difference shown"


def duels(
    ours: Sequence[Cell], others: Sequence[tuple[Variant, Sequence[Cell]]], samples: Samples
) -> list[Duel]:
    """The winner's cells against those of each other in turn: the runner-up by the mean need not be
    the one that is closest, where another's interval is wide."""
    return [Duel(v, held_against(ours, cells, samples)) for v, cells in others]


def held_against(
    ours: Sequence[Cell], others: Sequence[Cell], samples: Samples, metric: str = "tpot_s"
) -> Speed | None:
    """By how much a time of `LATENCIES` is shorter, over our workloads and loads; None where one
    of them has no pair."""
    theirs, times = {cell.place: cell for cell in others}, samples.times[metric]
    found = [
        rival_effects(times[cell], times[theirs[cell.place]], cell.workload)
        for cell in ours
        if cell.place in theirs
    ]
    known = [one for one in found if one is not None]
    return speed_of(known) if len(known) == len(ours) else None
