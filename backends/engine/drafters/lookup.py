"""Drafts from the text itself: what followed the last tokens when they stood there before.

Prompt lookup decoding (Saxena, 2023; also "n-gram" or LLMA, Yang et al., 2023): the longest of the
last n-grams that occurs earlier in prompt or answer, its last occurrence, and the tokens after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from backends.engine.streams import Stream


class PromptLookup:
    """A `Drafter` that needs no model.

    Args:
        slots: of the executor.
        max_drafts: most drafts of a stream at a time.
        shortest, longest: tokens of the n-grams that are looked for.
    """

    exits: tuple[int, ...] = ()

    def __init__(self, slots: int, max_drafts: int, shortest: int, longest: int) -> None:
        self.max_drafts = max_drafts
        self._lengths = range(longest, shortest - 1, -1)
        self._followed: list[dict[tuple[int, ...], int]] = [{} for _ in range(slots)]
        """By slot: the position after the last occurrence of each n-gram that something follows."""
        self._indexed = [0] * slots
        """By slot: tokens that have been looked at as the end of an n-gram."""

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        """Each stream by itself."""
        for stream in streams:
            room = stream.room(self.max_drafts)
            if room > 0:
                self._index(stream)
                start = self._find(stream)
                for token in stream.tokens[start : start + room]:
                    if token in stream.stops:
                        break
                    stream.tokens.append(token)
        return streams

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        """Nothing was indexed beyond what had been verified."""
        if stream.finished is not None:
            self._forget(stream.slot)
        return {}

    def reset(self) -> None:
        """Forget every stream."""
        for slot in range(len(self._indexed)):
            self._forget(slot)

    def _index(self, stream: Stream) -> None:
        """Take note of the n-grams that end before the last token."""
        followed, tokens = self._followed[stream.slot], stream.tokens
        for end in range(self._indexed[stream.slot], len(tokens) - 1):
            for length in self._lengths:
                if length <= end + 1:
                    followed[tuple(tokens[end + 1 - length : end + 1])] = end + 1
        self._indexed[stream.slot] = max(len(tokens) - 1, 0)

    def _find(self, stream: Stream) -> int:
        """Where the tokens that are drafted begin; behind the text where there are none."""
        followed, tokens = self._followed[stream.slot], stream.tokens
        for length in self._lengths:
            if length < len(tokens):
                start = followed.get(tuple(tokens[-length:]))
                if start is not None:
                    return start
        return len(tokens)

    def _forget(self, slot: int) -> None:
        self._followed[slot].clear()
        self._indexed[slot] = 0
