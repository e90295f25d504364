"""What becomes of drafts on our engine, recorded for the harness, and replayed from a trace.

A replay pays for everything: a draft model runs a pass for each token that it was asked for, the
text is searched, the first layers draft, and all drafts are verified. How long chains are and how
much of each stands is the trace's (`results.traces.drafted`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backends.own.decisions import Recorder, Replayer
from harness.core.decisions import Decisions
from harness.core.nouns import Commit, Request
from results.traces.drafted import DraftedRow
from results.traces.rated import RatedRow, drafts_of
from results.traces.rates import TraceSource

if TYPE_CHECKING:
    from backends.engine.drafters.base import Drafter
    from backends.engine.streams import Stream

SURE, UNSURE = 1.0, -1.0
"""Above and not above the threshold of an exit that always drafts."""


class DraftRecorder(Recorder):
    """Writes down how many tokens each verification was asked for, given, and left with."""

    def __init__(self) -> None:
        super().__init__(exits=0)
        self._asked: dict[str, int] = {}

    def confidence(self, stream: Stream, index: int, token: int, confidence: float) -> float:
        """An exit is asked for one more draft; overrules nothing."""
        self.asked(stream, 1)
        return confidence

    def asked(self, stream: Stream, tokens: int) -> None:
        """So many more are asked for before the stream's next verification."""
        self._asked[stream.id] = self._asked.get(stream.id, 0) + tokens

    def verified(
        self, stream: Stream, start: int, chosen: Sequence[int], accepted: int, under_way: int
    ) -> None:
        """Note the chain that is verified."""
        found = self._settled.setdefault(stream.id, Decisions())
        found.drafted.append(len(stream.tokens) - 1 - start)
        found.accepted.append(accepted)
        found.batch.append(under_way)
        found.asked.append(self._asked.pop(stream.id, 0))

    def reset(self) -> None:
        """Forget every stream."""
        super().reset()
        self._asked.clear()


class DraftReplayer(Replayer):
    """Overrules how long each stream's chains of drafts are, and how much of them stands."""

    def __init__(self, source: TraceSource) -> None:
        super().__init__(source)
        self._rows: dict[str, DraftedRow | RatedRow] = {}

    def enter(self, stream: Stream, request: Request) -> None:
        """Find the stream's row; its length alone ends the answer."""
        super().enter(stream, request)
        self._rows[stream.id] = drafts_of(self._source, self.row_for(request))

    def told(self, commits: Sequence[Commit]) -> list[Commit]:
        """The commits; streams that are over are forgotten."""
        for commit in commits:
            if commit.finished is not None:
                self._rows.pop(commit.request_id, None)
        return super().told(commits)

    def chain(self, stream: Stream, room: int) -> tuple[int, int]:
        """How many drafts are asked for after the stream's verified tokens, and how many come."""
        return self._rows[stream.id].chain(_position(stream), room)

    def confidence(self, stream: Stream, index: int, token: int, confidence: float) -> float:
        """Sure where the row has one draft more."""
        made = stream.drafts
        return SURE if self.chain(stream, made + 1)[1] > made else UNSURE

    def selected(self, stream: Stream, start: int, chosen: Sequence[int]) -> Sequence[int]:
        """The drafts themselves as far as they stand in the row, and another token after them."""
        found, drafts = list(chosen), stream.tokens[start + 1 :]
        position = start - len(stream.prompt)
        standing = self._rows[stream.id].standing(position, len(drafts))
        found[:standing] = drafts[:standing]
        if standing < len(drafts) and found[standing] == drafts[standing]:
            found[standing] = abs(drafts[standing] - 1)
        return found

    def reset(self) -> None:
        """Forget every stream."""
        super().reset()
        self._rows.clear()


class _Watched:
    """A `Drafter` around one that drafts from elsewhere."""

    exits: tuple[int, ...] = ()

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter

    @property
    def max_drafts(self) -> int:
        """The drafter's own."""
        return self._drafter.max_drafts

    @max_drafts.setter
    def max_drafts(self, most: int) -> None:
        self._drafter.max_drafts = most

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        """The drafter's own counts."""
        return self._drafter.verified(stream, accepted)

    def reset(self) -> None:
        """Forget every stream."""
        self._drafter.reset()


class RecordedDrafts(_Watched):
    """Tells a recorder how many tokens the drafter was asked for."""

    def __init__(self, drafter: Drafter, recorder: DraftRecorder) -> None:
        super().__init__(drafter)
        self._recorder = recorder

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        """As the drafter does. One that fills its room was asked for no more."""
        rooms = [stream.room(self.max_drafts) for stream in streams]
        found = self._drafter.draft(streams)
        for stream, room in zip(streams, rooms, strict=True):
            if room > 0:
                self._recorder.asked(stream, min(stream.drafts + 1, room))
        return found


class ReplayedDrafts(_Watched):
    """Has the drafter work for as many tokens as a row was asked for, and keeps as many as it made.

    What a search of the text lacks for that is filled up with the prompt's first tokens: which
    tokens they are decides nothing.
    """

    def __init__(self, drafter: Drafter, replayer: DraftReplayer) -> None:
        super().__init__(drafter)
        self._replayer = replayer

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        """All of them together, each with its own number."""
        kept = []
        for stream in streams:
            room = stream.room(self.max_drafts)
            stream.cap, made = self._replayer.chain(stream, room) if room > 0 else (0, 0)
            kept.append(len(stream.tokens) + made)
        found = self._drafter.draft(streams)
        for stream, end in zip(streams, kept, strict=True):
            stream.cap = None
            lacking = max(end - len(stream.tokens), 0)
            stream.tokens[end:] = ()
            stream.tokens += [stream.prompt[i % len(stream.prompt)] for i in range(lacking)]
        return found


def watched(drafter: Drafter, decided: Recorder | Replayer | None) -> Drafter:
    """A drafter from elsewhere under the eyes of who records it, or replays a trace."""
    if isinstance(decided, DraftReplayer):
        return ReplayedDrafts(drafter, decided)
    if isinstance(decided, DraftRecorder):
        return RecordedDrafts(drafter, decided)
    return drafter


def _position(stream: Stream) -> int:
    """Of the first draft after the stream's verified tokens."""
    return stream.done[-1] - len(stream.prompt)
