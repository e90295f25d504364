"""What our engine decides, recorded for the harness, and replayed from a trace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from backends.checkpoints.traces import folded
from harness.core.decisions import Decisions
from harness.core.nouns import Commit, Request
from results.traces.played import PlayedRow
from results.traces.rates import TraceSource
from results.traces.recorded import TraceRow

if TYPE_CHECKING:
    from backends.engine.drafters.trees.base import Guesses
    from backends.engine.streams import Stream

UNKNOWN = -1


@dataclass(slots=True)
class _Attempt:
    """A try to leave early that no full pass has settled yet."""

    after: int
    """Position in the whole sequence of the token that it follows."""
    tokens: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)


class Recorder:
    """Writes down what is decided about each stream.

    Args:
        exits: how many there are.
        judged: what leaves early is verified. Else nobody knows whether the last layer agrees, and
            a stop token leaves like any other.
    """

    def __init__(self, exits: int, *, judged: bool = True) -> None:
        self._exits, self._judged = exits, judged
        self._open: dict[str, list[_Attempt]] = {}
        self._settled: dict[str, Decisions] = {}

    def confidence(self, stream: Stream, index: int, token: int, confidence: float) -> float:
        """Note it, 0 for a stop token, which is never said early; overrules nothing."""
        attempts = self._open.setdefault(stream.id, [])
        if index == 0:
            attempts.append(_Attempt(len(stream.tokens) - 1))
        attempts[-1].tokens.append(token)
        unsaid = self._judged and token in stream.stops
        attempts[-1].confidence.append(0.0 if unsaid else confidence)
        return confidence

    def selected(self, stream: Stream, start: int, chosen: Sequence[int]) -> Sequence[int]:
        """Overrules nothing."""
        return chosen

    def walked(
        self, stream: Stream, guesses: Guesses, takes: Mapping[int, int]
    ) -> Mapping[int, int]:
        """Overrules nothing."""
        return takes

    def verified(
        self, stream: Stream, start: int, chosen: Sequence[int], accepted: int, under_way: int
    ) -> None:
        """Settle what was tried since the last pass: what followed a wrong draft nobody knows."""
        found = self._settled.setdefault(stream.id, Decisions())
        for attempt in self._open.pop(stream.id, ()):
            place = attempt.after - start
            known = self._judged and place < len(chosen)
            lacking = self._exits - len(attempt.tokens)
            found.positions.append(attempt.after - len(stream.prompt))
            found.confidence += [*attempt.confidence, *[math.nan] * lacking]
            found.agrees += [int(t == chosen[place]) if known else UNKNOWN for t in attempt.tokens]
            found.agrees += [UNKNOWN] * lacking
        found.drafted.append(len(stream.tokens) - 1 - start)
        found.accepted.append(accepted)
        found.batch.append(under_way)

    def folded(self, request: Request, vocabulary: int) -> Request:
        """As it is."""
        return request

    def enter(self, stream: Stream, request: Request) -> None:
        """Nothing is to be prepared."""

    def told(self, commits: Sequence[Commit]) -> list[Commit]:
        """The commits with what was settled of their streams since the last ones."""
        return [replace(c, decisions=self._settled.pop(c.request_id, None)) for c in commits]

    def reset(self) -> None:
        """Forget every stream."""
        self._open.clear()
        self._settled.clear()


@dataclass(slots=True)
class _Played:
    row: PlayedRow
    attempts: dict[int, int] = field(default_factory=dict)
    """By position in the answer, those made."""
    exit_: dict[int, int] = field(default_factory=dict)
    """Likewise: the exit that was asked last."""


class Replayer:
    """Overrules what is decided about each stream by its row of a trace. `columns`: the exits of
    the trace that those of the engine replay; none where lengths alone are replayed."""

    def __init__(self, source: TraceSource, columns: Sequence[int] = ()) -> None:
        self._source, self._columns = source, columns
        self._played: dict[str, _Played] = {}

    def folded(self, request: Request, vocabulary: int) -> Request:
        """With the prompt's tokens in this vocabulary."""
        return replace(request, prompt_ids=folded(request, vocabulary))

    def enter(self, stream: Stream, request: Request) -> None:
        """Find the stream's row; its length alone ends the answer."""
        row = self.row_for(request)
        stream.stops = frozenset()
        stream.last = row.end(request.max_new_tokens, ignore_eos=request.ignore_eos)
        if self._columns:
            played = PlayedRow(row, self._columns, ends=stream.last is not None)
            self._played[stream.id] = _Played(played)

    def row_for(self, request: Request) -> TraceRow:
        """What the request replays."""
        most, ignores = request.max_new_tokens, request.ignore_eos
        return self._source.row_for(request.id, most, ignore_eos=ignores)

    def told(self, commits: Sequence[Commit]) -> list[Commit]:
        """The commits; streams that are over are forgotten."""
        for commit in commits:
            if commit.finished is not None:
                self._played.pop(commit.request_id, None)
        return list(commits)

    def confidence(self, stream: Stream, index: int, token: int, confidence: float) -> float:
        """The row's, of the attempt at this position that is next."""
        played = self._played[stream.id]
        position = len(stream.tokens) - 1 - len(stream.prompt)
        if index == 0:
            played.attempts[position] = played.attempts.get(position, -1) + 1
        played.exit_[position] = index
        return played.row.confidence(position, played.attempts[position], index)

    def selected(self, stream: Stream, start: int, chosen: Sequence[int]) -> Sequence[int]:
        """The drafts themselves where the row accepts them, and other tokens where not."""
        played, found = self._played[stream.id], list(chosen)
        first = start - len(stream.prompt)
        for place, draft in enumerate(stream.tokens[start + 1 :]):
            position = first + place
            attempt, exit_ = played.attempts[position], played.exit_[position]
            if played.row.agrees(position, attempt, exit_):
                found[place] = draft
            elif found[place] == draft:
                found[place] = abs(draft - 1)
        return found

    def walked(
        self, stream: Stream, guesses: Guesses, takes: Mapping[int, int]
    ) -> Mapping[int, int]:
        """Overrules nothing."""
        return takes

    def verified(
        self, stream: Stream, start: int, chosen: Sequence[int], accepted: int, under_way: int
    ) -> None:
        """Nothing is to be noted."""

    def reset(self) -> None:
        """Forget every stream."""
        self._played.clear()
