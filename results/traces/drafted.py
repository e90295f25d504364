"""What became of drafts in a recorded answer, position by position, as a replay asks for it.

A draft model, asked greedily or with the noise of its position, says the same after the same text,
wherever its chain began; so do the first layers of a model. Whether the draft of a position is made
and whether it stands are then the position's own, and a replay may begin its chains elsewhere and
make them longer or shorter. What the recorded run drafted behind a wrong draft is known too: as far
as it had room.

A position whose draft nobody made on the right text (after a chain that ended for want of room) has
the fate of another position of the same answer, drawn by its number: on average the answer's rates.
With as many drafts as were recorded no such position is ever asked.

A drafter that does not know where the answer ends drafts beyond it. How long its last chain was is
known, and is repeated.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from results.traces.recorded import TraceRow


@dataclass(frozen=True, slots=True)
class Fate:
    """Of the draft at one position, after the text that stood."""

    made: bool
    """False: the drafter was asked, and ended its chain instead."""
    right: bool = False
    further: int = 0
    """How many drafts followed it, where it was wrong."""
    ended: bool = False
    """Whether the drafter ended these itself; else there was no room for more."""


NONE, RIGHT = Fate(False), Fate(True, True)


class DraftedRow:
    """One row's drafts. Positions are those of attempts (`harness.core.decisions`): 0 is the first
    token after the prompt's own. Those beyond the row's end begin anew."""

    def __init__(self, row: TraceRow) -> None:
        *told, self._beyond = _told(row)
        known = [fate for fate in told if fate is not None]
        self._fates: list[Fate] = [
            _drawn(known, f"{row.request_id} {position}") if fate is None else fate
            for position, fate in enumerate(told)
        ]

    def chain(self, position: int, room: int) -> tuple[int, int]:
        """Of the drafts from a position on, where there is room for so many: how many the drafter
        is asked for, and how many it makes (one less where it ends the chain itself)."""
        end = len(self._fates) - position % len(self._fates)
        for made in range(room):
            fate = (self._beyond if made == end else None) or self._at(position + made)
            if not fate.made:
                return made + 1, made
            if not fate.right:
                made += 1 + fate.further
                return (made + 1, made) if fate.ended and made < room else (room, room)
        return room, room

    def standing(self, position: int, drafts: int) -> int:
        """How many of so many drafts from a position on stand."""
        for place in range(drafts):
            if not self._at(position + place).right:
                return place
        return drafts

    def _at(self, position: int) -> Fate:
        return self._fates[position % len(self._fates)]


def _told(row: TraceRow) -> list[Fate | None]:
    """By position what the passes tell; None where they do not. The last one is behind the end."""
    found: list[Fate | None] = [None] * (max(row.answer_tokens - 1, 1) + 1)
    position = 0
    passes = zip(row.drafted.tolist(), row.accepted.tolist(), row.asked.tolist(), strict=True)
    for drafted, accepted, asked in passes:
        fates: list[Fate] = [RIGHT] * accepted
        if accepted < drafted:
            fates.append(Fate(True, False, drafted - accepted - 1, asked > drafted))
        elif asked > drafted:
            fates.append(NONE)
        for place, fate in enumerate(fates, position):
            if place < len(found):
                found[place] = fate
        position += accepted + 1
    return found


def _drawn(known: Sequence[Fate], seed: str) -> Fate:
    return known[zlib.crc32(seed.encode()) % len(known)] if known else NONE
