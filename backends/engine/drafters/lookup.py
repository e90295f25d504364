"""Drafts from the text itself: what followed the last tokens when they stood there before.

Prompt lookup decoding (Saxena, 2023; also "n-gram" or LLMA, Yang et al., 2023): the longest of the
last n-grams that occurs earlier in prompt or answer, its last occurrence, and the tokens after it,
read on into the drafts themselves where they reach the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from backends.engine.streams import Stream


class PromptLookup:
    """A `Drafter` that needs no model.

    A sequence is kept as a string with a character for each token (ids below 1,114,112 are code
    points), since a string is searched in less time than an index of a prompt's n-grams is made.

    Args:
        slots: of the executor.
        max_drafts: most drafts of a stream at a time.
        shortest, longest: tokens of the n-grams that are looked for.
    """

    exits: tuple[int, ...] = ()

    def __init__(self, slots: int, max_drafts: int, shortest: int, longest: int) -> None:
        self.max_drafts = max_drafts
        self._lengths = range(longest, shortest - 1, -1)
        self._texts = [""] * slots
        """By slot: the tokens that were verified when it last drafted."""

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        """Each stream by itself."""
        for stream in streams if self.max_drafts else ():
            room = stream.room(self.max_drafts)
            if room > 0:
                tokens, start = stream.tokens, self._find(stream)
                for place in range(start, start + room) if start < len(tokens) else ():
                    token = tokens[place]
                    if token in stream.stops:
                        break
                    tokens.append(token)
        return streams

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        """Nothing was kept beyond what had been verified."""
        if stream.finished is not None:
            self._texts[stream.slot] = ""
        return {}

    def reset(self) -> None:
        """Forget every stream."""
        self._texts = [""] * len(self._texts)

    def _find(self, stream: Stream) -> int:
        """Where the tokens that are drafted begin; behind the text where there are none."""
        text, tokens = self._texts[stream.slot], stream.tokens
        text += "".join(map(chr, tokens[len(text) :]))
        self._texts[stream.slot] = text
        before = len(text) - 1  # something follows what ends before the last token
        for length in self._lengths:
            if length <= before:
                start = text.rfind(text[-length:], 0, before)
                if start >= 0:
                    return start + length
        return len(tokens)
