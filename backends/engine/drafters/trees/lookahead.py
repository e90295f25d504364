"""LookAhead decoding (Fu et al., ICML 2024, arXiv 2402.02057): guesses from the model itself, made
in the passes that verify others.

Jacobi iteration guesses all tokens of a window at once and computes them again from one another.
LookAhead keeps the last N - 1 iterations of a window of W places (the paper's lookahead branch, its
Figure 2): each pass computes the next one, and the tokens on a diagonal through all of them follow
one another, so that they make an n-gram. N-grams are pooled by their first token; the newest ones
that begin with the stream's last token, at most G, are verified in the same pass (the verification
branch).

Place 0 of the oldest iteration is the stream's last token. That iteration is the trunk of a tree
whose branches are the later tokens of each place. The window is greedy also where a stream samples:
noise is keyed by position, and n-grams come back at other positions than they were computed for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from backends.engine.drafters.trees.base import Guesses
from backends.engine.streams import Stream


class LookAhead:
    """A `TreeDrafter`.

    Args:
        positions: of the executor; near their end a stream goes without a window.
        window: W, places that are guessed ahead, at least 1.
        ngram: N, tokens of an n-gram, at least 2.
        guesses: G, most n-grams verified at once.
        pool_prompt: the n-grams of prompts are pooled too.
        max_drafts: most tokens of a guess; N - 1 if more.
        offered: makes the guesses of a stream with so much room, in the place of the pool.
    """

    exits: tuple[int, ...] = ()

    def __init__(
        self,
        positions: int,
        window: int,
        ngram: int,
        guesses: int,
        *,
        pool_prompt: bool = False,
        max_drafts: int | None = None,
        offered: Callable[[Stream, int], Guesses] | None = None,
    ) -> None:
        self.max_drafts = min(ngram - 1, max_drafts or ngram - 1)
        self._positions, self._size = positions, (window, ngram, guesses)
        self._pool_prompt, self._offered = pool_prompt, offered
        self._ahead: dict[int, _Ahead] = {}
        """By slot."""

    def grow(self, streams: Sequence[Stream]) -> Sequence[Guesses]:
        """Each stream by itself; nothing where no draft is allowed."""
        if not self.max_drafts:
            return []
        return [self._tree(stream) for stream in streams]

    def told(self, stream: Stream, tokens: Sequence[int]) -> None:
        """The next iteration of the window; none where a guess made the logits NaN (-1)."""
        if tokens and min(tokens) >= 0:
            self._ahead[stream.slot].take(tokens)

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        """The window stays as it is, also where several guesses stood: to move it on by as many
        places, with new tokens at its end, brought no more tokens a step (LOG.md)."""
        if stream.finished is not None:
            self._ahead.pop(stream.slot, None)
        return {}

    def reset(self) -> None:
        """Forget every stream."""
        self._ahead.clear()

    def usual(self) -> Guesses:
        """A tree as a step has it when the window is full and one guess is at hand."""
        window, ngram, _ = self._size
        ahead = _Ahead((0,), *self._size)
        for _ in range(ngram - 2):
            ahead.take([0] * window)
        guesses = Guesses.of(0, [(0,) * self.max_drafts])
        ahead.append_to(guesses)
        return guesses

    def _tree(self, stream: Stream) -> Guesses:
        last, room = stream.tokens[-1], stream.room(self.max_drafts)
        ahead = self._ahead.get(stream.slot)
        if ahead is None:
            ahead = self._ahead[stream.slot] = _Ahead(stream.prompt, *self._size)
            if self._pool_prompt:
                ahead.pool_all(stream.prompt)
        guesses = Guesses.of(last, ahead.guesses(last, room, stream.stops))
        if self._offered is not None:
            guesses = self._offered(stream, room)
        reach = len(stream.tokens) - 1 + ahead.reach
        # no later step would have a use for what the window finds
        if room > 0 and reach < self._positions:
            ahead.append_to(guesses)
        return guesses


class _Ahead:
    """Window and pool of one stream."""

    def __init__(self, prompt: Sequence[int], window: int, ngram: int, guesses: int) -> None:
        self._window, self._ngram, self._most = window, ngram, guesses
        self._levels = [random.Random(len(prompt)).choices(prompt, k=window)]
        """Iterations, the oldest first; of the first one place 0 is the stream's last token."""
        self._pool: dict[int, dict[tuple[int, ...], None]] = {}
        """By first token: what followed it, the newest last."""
        self._last = -1

    @property
    def reach(self) -> int:
        """How far the window's last row stands behind the stream's last token."""
        return self._window + len(self._levels) - 2

    def guesses(self, last: int, room: int, stops: frozenset[int]) -> list[tuple[int, ...]]:
        """What may follow the stream's last token, so many tokens at most, up to a stop token."""
        self._last = last
        if room <= 0:
            return []
        found = []
        for ngram in self._pool.get(last, ()):
            end = next((i for i, token in enumerate(ngram) if token in stops), len(ngram))
            if end:
                found.append(ngram[: min(end, room)])
        return found

    def append_to(self, guesses: Guesses) -> None:
        """The window's rows after the guesses; their last tokens are asked for."""
        levels, tokens, back = self._levels, guesses.tokens, guesses.back
        trunk = at = 0
        asked = []
        for place in range(self._window):
            if place:
                at = len(tokens)
                back.append(at - trunk)
                tokens.append(levels[0][place])
                trunk = at
            for level in levels[1:]:
                back.append(len(tokens) - at)
                at = len(tokens)
                tokens.append(level[place])
            asked.append(at)
        guesses.asked = asked

    def take(self, tokens: Sequence[int]) -> None:
        """The tokens of the next iteration, by place; the oldest one is over when all are there."""
        levels = self._levels
        levels[0][0] = self._last
        levels.append(list(tokens))
        if len(levels) == self._ngram:
            for ngram in zip(*levels, strict=True):
                self._add(ngram)
            del levels[0]

    def pool_all(self, tokens: Sequence[int]) -> None:
        """All n-grams of a text."""
        for start in range(len(tokens) - self._ngram + 1):
            self._add(tokens[start : start + self._ngram])

    def _add(self, ngram: Sequence[int]) -> None:
        first, rest = ngram[0], tuple(ngram[1:])
        known = self._pool.setdefault(first, {})
        known.pop(rest, None)
        known[rest] = None
        if len(known) > self._most:
            del known[next(iter(known))]
