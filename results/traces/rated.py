"""What becomes of drafts by rates, as a replay asks for it."""

from __future__ import annotations

import random

from results.traces.drafted import DraftedRow
from results.traces.rates import Rates, TraceSource
from results.traces.recorded import TraceRow


class RatedRow:
    """One request's drafts, drawn from its id and the rates' seed: for each token of the answer how
    far in a chain its draft would stand. Positions are those of `DraftedRow`; those beyond the
    answer begin anew. A drafter fills its room, or is asked once and finds nothing."""

    def __init__(self, rates: Rates, row: TraceRow) -> None:
        draw = random.Random(f"{rates.seed} {row.request_id} drafts")
        self._chain = rates.chain
        places = range(max(row.answer_tokens - 1, 1))
        self._luck = [draw.random() for _ in places]
        self._found = [draw.random() < rates.found for _ in places]

    def chain(self, position: int, room: int) -> tuple[int, int]:
        """As `DraftedRow.chain`."""
        if not self._found[position % len(self._found)]:
            return 1, 0
        return room, room

    def standing(self, position: int, drafts: int) -> int:
        """As `DraftedRow.standing`."""
        for place in range(drafts):
            rate = self._chain[min(place, len(self._chain) - 1)]
            if self._luck[(position + place) % len(self._luck)] >= rate:
                return place
        return drafts


def drafts_of(source: TraceSource, row: TraceRow) -> DraftedRow | RatedRow:
    """What becomes of the drafts of a request that replays a row of this source."""
    return RatedRow(source, row) if isinstance(source, Rates) else DraftedRow(row)
