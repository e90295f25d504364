"""Passes of streams through the executor's segments, booked: nothing is run twice or left out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from backends.engine.executors.base import Executor, Int32, StepRows
from backends.engine.streams import Stream

Span = tuple[Stream, int, int]
"""Positions of a stream, from a first one up to, not including, a second."""


def depths(executor: Executor) -> list[int]:
    """The number of layers of each segment."""
    bounds = (0, *executor.exits, executor.architecture.layers)
    return [end - start for start, end in itertools.pairwise(bounds)]


def enter(streams: Iterable[Stream], index: int, layers: int) -> list[Span]:
    """What segment `index`, of so many layers, has not processed of the streams, now booked as
    processed."""
    spans = []
    for stream in streams:
        start, end = stream.done[index], len(stream.tokens)
        spans.append((stream, start, end))
        stream.done[index] = end
        stream.layers_run += layers
    return spans


def enter_all(streams: Iterable[Stream], layers: int) -> list[Span]:
    """What no segment has processed of the streams, now booked as processed by all, which have so
    many layers. Theirs is the same in each segment."""
    spans = []
    for stream in streams:
        start, end = stream.done[0], len(stream.tokens)
        spans.append((stream, start, end))
        stream.done = [end] * len(stream.done)
        stream.layers_run += layers
    return spans


def is_untouched(stream: Stream) -> bool:
    """Whether no segment has processed what the last one has not."""
    return stream.done[0] == stream.done[-1]


def rows_of(spans: Sequence[Span]) -> StepRows:
    """The positions of the spans, one row each."""
    if len(spans) == 1:
        stream, start, end = spans[0]
        return StepRows.span(stream.slot, start, stream.tokens[start:end])
    slots: list[int] = []
    positions: list[int] = []
    tokens: list[int] = []
    for stream, start, end in spans:
        slots += [stream.slot] * (end - start)
        positions += range(start, end)
        tokens += stream.tokens[start:end]
    return StepRows(slots, positions, tokens)


def numbers(rows: Sequence[int]) -> Int32:
    """Row numbers as an executor takes them."""
    return np.array(rows, np.int32)


def ends_of(spans: Sequence[Span]) -> Int32:
    """The number of the last row of each span among the rows of all."""
    return numbers(list(itertools.accumulate(end - start for _, start, end in spans))) - np.int32(1)
