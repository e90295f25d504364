"""A chain of drafts for each stream: a model continues it, token by token."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from backends.engine.draws import Draws
from backends.engine.executors.base import RING, Executor, Int32
from backends.engine.passes import Span, ends_of, numbers, rows_of
from backends.engine.streams import Stream


class Chains:
    """Drafts by a model, as many as it is sure of.

    A stream that samples drafts samples, with the noise of its verification
    (`backends.engine.sampling`), since the most probable token is not the one that will be drawn.

    Args:
        executor: of the model that drafts, without exits.
        threshold: no draft follows one that this model held less probable.
    """

    def __init__(self, executor: Executor, threshold: float) -> None:
        self._executor, self._threshold = executor, threshold

    def extend(self, streams: Sequence[Stream], max_drafts: int, done: list[int]) -> None:
        """Append drafts to the streams' tokens, a token of each at a time.

        Args:
            streams: those that have room for one among `max_drafts`.
            max_drafts: most drafts of a stream.
            done: by slot, the positions that the executor has processed, less than there are
                tokens; brought up to date.
        """
        self._continue([s for s in streams if s.sampling.temperature == 0], max_drafts, done, None)
        sampled = [s for s in streams if s.sampling.temperature > 0]
        if sampled:
            self._continue(sampled, max_drafts, done, Draws(s.sampling for s in sampled))

    def _continue(
        self, drafting: Sequence[Stream], max_drafts: int, done: list[int], draws: Draws | None
    ) -> None:
        """All in one call, with the noise that verification will have at the same position."""
        if not drafting:
            return
        spans = [(s, done[s.slot], len(s.tokens)) for s in drafting]
        most = [s.room(max_drafts) for s in drafting]
        # what follows a stop token is no part of the answer, so that it is not drafted either
        stops = frozenset.intersection(*(s.stops for s in drafting))
        found = self._executor.continued(
            rows_of(spans), ends_of(spans), numbers(most), self._threshold, _sorted(stops), draws
        )
        for stream, room, tokens in zip(drafting, most, found, strict=True):
            if stream.stops != stops:
                end = next((i for i, token in enumerate(tokens) if token in stream.stops), room)
                tokens = tokens[:end]
            stream.tokens += tokens
            # the last of as many as there was room for was not fed back
            done[stream.slot] = len(stream.tokens) - (len(tokens) == room)


def far_behind(streams: Sequence[Stream], done: list[int]) -> list[Span]:
    """What was decoded since without drafts, prompts first of all, but for the newest token: more
    positions than a boundary holds, so that they cannot be continued from.

    Args:
        streams: those that are to draft.
        done: by slot, the positions that are processed; brought up to date.
    """
    spans: list[Span] = []
    for stream in streams:
        start, end = done[stream.slot], len(stream.tokens) - 1
        if end - start >= RING:
            spans.append((stream, start, end))
            done[stream.slot] = end
    return spans


@functools.lru_cache(maxsize=64)
def _sorted(stops: frozenset[int]) -> Int32:
    return numbers(sorted(stops))
