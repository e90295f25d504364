"""What the decoder asks of a drafter that offers several continuations: a tree of guesses a stream.

The pass that verifies goes through all rows of a tree at once (`executors.trees`). Then the
decoder walks: at each row it takes what the model selects there, as plain decoding would, and goes
on to the guess that is this token, if there is one. So the text is plain decoding's at every
temperature.

A step's counts are those of one chain of drafts (`drafters.counts`), read along the way that was
taken: `judged_at_I` says that there was a guess for its I-th token, whatever number of them, and
`accepted_at_I` that one of them was it. `drafted` counts all guesses that were offered, for every
position, since each takes a row: `accepted` over `drafted` is lower than that of a chain as good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from backends.engine.streams import Stream


@dataclass(slots=True)
class Guesses:
    """A tree of one stream, in preorder (`executors.trees.TreeRows`)."""

    tokens: list[int]
    """The stream's last token, which is row 0, the guesses, and other rows after them."""
    back: list[int]
    judged: int
    """So many rows from the first one on are guesses and the last token."""
    asked: Sequence[int] = field(default=())
    """Rows (ascending) after which the drafter wants to know the most probable token."""

    @classmethod
    def of(cls, last: int, continuations: Iterable[tuple[int, ...]]) -> Guesses:
        """Of a stream's last token and what may follow it; common beginnings become one."""
        tokens, back, way = [last], [0], [0]
        before: tuple[int, ...] = ()
        for guess in sorted(set(continuations)):
            same = 0
            while same < len(before) and before[same] == guess[same]:
                same += 1
            del way[same + 1 :]
            for token in guess[same:]:
                back.append(len(tokens) - way[-1])
                way.append(len(tokens))
                tokens.append(token)
            before = guess
        return cls(tokens, back, len(tokens))


@runtime_checkable
class TreeDrafter(Protocol):
    """Guesses tokens of the streams under way, several for one position; else like `Drafter`."""

    exits: tuple[int, ...]
    """None: guesses are made without the model's layers."""
    max_drafts: int
    """Levels of the deepest tree of guesses, below `executors.base.RING`."""

    def grow(self, streams: Sequence[Stream]) -> Sequence[Guesses]:
        """A tree for each stream, in their order; none at all for a step without guesses.

        Guesses are no deeper than `Stream.room(max_drafts)`, none of them is a stop token of the
        stream, and no row stands beyond the executor's positions.
        """

    def told(self, stream: Stream, tokens: Sequence[int]) -> None:
        """The most probable tokens after the rows that were `asked`, -1 where the logits are NaN;
        `verified` follows."""

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        """See `Drafter.verified`."""

    def reset(self) -> None:
        """Forget every stream."""
