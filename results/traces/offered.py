"""What became of trees of guesses in a recorded answer, position by position, as a replay asks for
it.

What a tree offers depends on the passes before it, so that only a replay of the same windows in the
same steps is a repetition. One that goes without guesses for a while comes back to positions in the
middle of a recorded pass: what stood from there on stands again.
"""

from __future__ import annotations

from typing import NamedTuple

from results.traces.recorded import TraceRow


class Offer(NamedTuple):
    """One pass over a tree."""

    offered: int
    """Guesses that it verifies."""
    drafted: int
    """Those on the way that is taken, with one that falls at its end."""
    accepted: int
    """Those that stand."""


NONE = Offer(0, 0, 0)


class OfferedRow:
    """One row's guesses. Positions are those of `results.traces.drafted.DraftedRow`."""

    def __init__(self, row: TraceRow) -> None:
        self._offers: list[Offer] = []
        passes = zip(row.offered.tolist(), row.drafted.tolist(), row.accepted.tolist(), strict=True)
        for offered, drafted, accepted in passes:
            for place in range(accepted + 1):
                left = drafted - place
                self._offers.append(Offer(offered, left, accepted - place) if left > 0 else NONE)

    def at(self, position: int, room: int) -> Offer:
        """Of the pass that begins at a position, with room for so many tokens of a guess."""
        if not self._offers or room <= 0:
            return NONE
        offered, drafted, accepted = self._offers[position % len(self._offers)]
        return Offer(offered, min(drafted, room), min(accepted, room))
