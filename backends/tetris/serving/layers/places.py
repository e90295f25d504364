"""Places in a worker's cache: it has room for its share of the sequences, not for all of them."""

from __future__ import annotations

import numpy as np

from backends.engine.executors.base import StepRows

NONE = -1


def share(slots: int, replicas: int) -> int:
    """Sequences that one of so many replicas has at most. A new one goes to the replica that has
    the fewest: where that has n, all have n or more, and `replicas` times n are fewer than `slots`,
    since the new one has a slot, too."""
    return -(-slots // replicas)


class CachePlaces:
    """A place for each slot from when a worker first meets it until it is released.

    Args:
        slots: of all sequences.
        places: of the worker's cache.
    """

    def __init__(self, slots: int, places: int) -> None:
        self._free = list(range(places))[::-1]
        self._of = np.full(slots, NONE, np.int32)

    def rows(self, rows: StepRows) -> StepRows:
        """The same rows at their places. Raises `IndexError` where there is none left."""
        found = self._of[rows.slots]
        if (found == NONE).any():
            for slot in dict.fromkeys(rows.slots[found == NONE].tolist()):
                self._of[slot] = self._free.pop()
            found = self._of[rows.slots]
        return StepRows(found, rows.positions, rows.tokens)

    def release(self, slot: int) -> int | None:
        """The place of a slot whose sequence is over; None of one that the worker never met."""
        place = int(self._of[slot])
        if place == NONE:
            return None
        self._of[slot] = NONE
        self._free.append(place)
        return place
