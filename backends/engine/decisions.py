"""Where decisions about a stream can be seen and overruled: to record them, and to replay a record.

The work is the same whoever decides: layers and heads run, and drafts are verified, before anything
is asked here. A drafter that draws its tokens from elsewhere calls `confidence` as it sees fit; the
decoder's two calls hold for every drafter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from backends.engine.drafters.trees.base import Guesses
from backends.engine.streams import Stream


class DecisionHook(Protocol):
    """Given to a decoder and its drafter. Positions are those of the whole sequence."""

    def confidence(self, stream: Stream, index: int, token: int, confidence: float) -> float:
        """Exit number `index` is this sure that `token` follows the stream's last token. Exits are
        asked in order, the first one at the beginning of each attempt.

        Returns:
            The confidence that is compared with the threshold.
        """

    def selected(self, stream: Stream, start: int, chosen: Sequence[int]) -> Sequence[int]:
        """The model selects these tokens after position `start` and each that follows it; the
        drafts are the stream's tokens after `start`.

        Returns:
            The tokens that the drafts are compared with, as many.
        """

    def walked(
        self, stream: Stream, guesses: Guesses, takes: Mapping[int, int]
    ) -> Mapping[int, int]:
        """The model takes these tokens after the judged rows of a stream's tree of guesses, by row.

        Returns:
            The tokens by which the tree is walked, for the same rows.
        """

    def verified(
        self, stream: Stream, start: int, chosen: Sequence[int], accepted: int, under_way: int
    ) -> None:
        """A full pass is over: so many drafts stood, and `chosen` is what was selected after
        position `start` and each that follows, as far as the answer goes now; the stream still has
        all its drafts. `under_way`: the streams that were, at the beginning of the step."""
