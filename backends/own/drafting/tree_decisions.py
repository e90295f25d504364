"""What becomes of trees of guesses on our engine, recorded for the harness, and replayed from a
trace.

A replay pays for everything: the window is computed on, the pool is kept, and as many guesses are
verified. How many there are and which of them stand is the trace's (`results.traces.offered`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from backends.own.decisions import Recorder, Replayer
from harness.core.decisions import Decisions
from harness.core.nouns import Commit, Request
from results.traces.offered import Offer, OfferedRow
from results.traces.rates import TraceSource

if TYPE_CHECKING:
    from backends.engine.drafters.trees.base import Guesses
    from backends.engine.streams import Stream

FIRST = 5
"""Tokens from here on are guesses that fall: which ones decides nothing."""


class TreeRecorder(Recorder):
    """Writes down how many guesses each verification had, and what is left of them."""

    def __init__(self) -> None:
        super().__init__(exits=0)
        self._offered: dict[str, int] = {}

    def walked(
        self, stream: Stream, guesses: Guesses, takes: Mapping[int, int]
    ) -> Mapping[int, int]:
        """Note the tree's size; overrules nothing."""
        self._offered[stream.id] = guesses.judged - 1
        return takes

    def verified(
        self, stream: Stream, start: int, chosen: Sequence[int], accepted: int, under_way: int
    ) -> None:
        """Note the way that was taken."""
        super().verified(stream, start, chosen, accepted, under_way)
        found = self._settled.setdefault(stream.id, Decisions())
        found.offered.append(self._offered.pop(stream.id, 0))

    def reset(self) -> None:
        """Forget every stream."""
        super().reset()
        self._offered.clear()


class TreeReplayer(Replayer):
    """Makes the guesses of each stream, and overrules which of them stand."""

    def __init__(self, source: TraceSource) -> None:
        super().__init__(source)
        self._rows: dict[str, OfferedRow] = {}
        self._offers: dict[str, Offer] = {}

    def enter(self, stream: Stream, request: Request) -> None:
        """Find the stream's row; its length alone ends the answer."""
        super().enter(stream, request)
        self._rows[stream.id] = OfferedRow(self.row_for(request))

    def told(self, commits: Sequence[Commit]) -> list[Commit]:
        """The commits; streams that are over are forgotten."""
        for commit in commits:
            if commit.finished is not None:
                self._rows.pop(commit.request_id, None)
                self._offers.pop(commit.request_id, None)
        return super().told(commits)

    def offered(self, stream: Stream, room: int) -> Guesses:
        """As many guesses as the row had here: one that goes as deep as the way went, and others
        for its first token."""
        from backends.engine.drafters.trees.base import Guesses

        offer = self._rows[stream.id].at(len(stream.tokens) - 1 - len(stream.prompt), room)
        self._offers[stream.id] = offer
        deep = (FIRST,) * offer.drafted
        beside = range(FIRST + 1, FIRST + 1 + offer.offered - offer.drafted)
        return Guesses.of(stream.tokens[-1], [deep, *((token,) for token in beside)])

    def walked(
        self, stream: Stream, guesses: Guesses, takes: Mapping[int, int]
    ) -> Mapping[int, int]:
        """Down the deep guess as far as the row's stood; what follows is none of the guesses."""
        offer = self._offers[stream.id]
        # in preorder the deep one, whose tokens are the least, comes first
        return {
            row: FIRST if row < offer.accepted else token if token < FIRST else FIRST - 1
            for row, token in takes.items()
        }

    def selected(self, stream: Stream, start: int, chosen: Sequence[int]) -> Sequence[int]:
        """What the way was walked by."""
        return chosen

    def reset(self) -> None:
        """Forget every stream."""
        super().reset()
        self._rows.clear()
        self._offers.clear()
