"""What the decoder asks of a drafter: the seam where another way to guess tokens plugs in.

A step of the decoder admits prompts, has the drafter draft, verifies what it returns, and commits.
Verification compares each draft with the token that the model itself selects there, so that the
text is plain decoding's whatever was drafted; a drafter decides about speed alone.

There are two kinds. Drafts from elsewhere (a draft model, the prompt) are made without the model's
layers: the drafter has no `exits`, the executor is a single segment, and the verification is one
pass of all layers with a row for each draft and one more. Drafts from inside are made at the exits
of the executor: the drafter runs the segments before the last itself (`backends.engine.passes`),
leaves what remains to a later call, and the verification is the last segment's pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from backends.engine.streams import Stream


class Drafter(Protocol):
    """Guesses tokens of the streams under way.

    A stream is known by its id (or its slot, while it runs), from the first `draft` that shows it
    to the `verified` that finds its `finished` set. Steps between that are decoded without drafts
    may pass without either.
    """

    exits: tuple[int, ...]
    """The layers after which it drafts, those of the executor; none for drafts from elsewhere."""
    max_drafts: int
    """Most drafts of a stream that wait for verification, below `executors.base.RING`."""

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        """Guess, and return the streams that are to be verified now, all or some or none of them.

        Args:
            streams: all that are under way, in the order of their admission. Their `tokens` are
                the prompt, the verified answer and the drafts that wait (`Stream.drafts` of them).

        Drafts are appended to `Stream.tokens`, no more than `Stream.room(max_drafts)`: what lies
        beyond has no place in the cache. The streams that are returned have gone through all
        segments but the last, with every token, or all of them through none: then one call runs
        all segments. One without drafts is decoded plainly. One that is not
        returned is shown again, with its drafts. Each call has to bring some stream nearer to its
        verification.
        """

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        """Take note that the first `accepted` drafts of a stream stood and the others are gone.

        Its `tokens` are all verified now, with one that the model selected after the last draft
        that stood (unless the answer ended in a draft), and `finished` says whether it is over.

        Returns:
            The drafter's own counts since the last call, for the telemetry.
        """

    def reset(self) -> None:
        """Forget every stream."""
