"""Streams that leave early on an executor of random weights, as the tests run them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from backends.engine.decoder import Decoder
from backends.engine.early_exits import EarlyExits
from backends.engine.executors.native import NativeExecutor
from backends.engine.executors.torch import TorchExecutor
from backends.engine.sampling import GREEDY, TokenSampling
from backends.engine.segments.queues import BalancedQueues, Lockstep, SegmentChoice
from backends.engine.streams import Stream
from backends.kernels.cpu import native_checks
from tests.support.engine.random_models import RandomModel

Kind = Callable[..., Any]
KINDS: list[Kind] = [TorchExecutor, *[NativeExecutor][: native_checks.available()]]
"""The executors that run on a CPU here."""
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
batchings = pytest.mark.parametrize("batching", ["lockstep", "ready"])
LENGTHS = 5, 19, 1, 30, 12, 3, 26
MOST = 34
"""Tokens of an answer: more than a boundary holds positions, and past position 32."""
Leaving = Callable[[str, int, int, float], bool]
"""By stream, token of its answer, exit and confidence."""


class ToldRule:
    """A `LeavingRule` that is told who leaves."""

    def __init__(self, leaves: Leaving) -> None:
        self._leaves = leaves

    def passes(self, stream: Stream, index: int, confidence: float) -> bool:
        number = len(stream.tokens) - 1 - len(stream.prompt)
        return self._leaves(stream.id, number, index, confidence)

    def counts(self, layers: int, under_way: int) -> Mapping[str, float]:
        return {f"left_after_{layers}": 1}


def at_random(name: str, number: int, index: int, confidence: float) -> bool:
    """Runs of early tokens, longer than a boundary, with deep ones between."""
    draw = random.Random(f"{name} {number // 20} {number} {index}")
    shares = (0.97, 0.9, 0.9) if (number // 20 + len(name)) % 2 == 0 else (0.4, 0.5, 0.6)
    return draw.random() < shares[index % 3]


def when_sure(name: str, number: int, index: int, confidence: float) -> bool:
    return confidence > (0.3, 0.2, 0.15)[index % 3]


def never(name: str, number: int, index: int, confidence: float) -> bool:
    return False


def always(name: str, number: int, index: int, confidence: float) -> bool:
    return True


def segments(batching: str, count: int) -> SegmentChoice:
    return Lockstep() if batching == "lockstep" else BalancedQueues([1.0 + i for i in range(count)])


def opened(
    kind: Kind,
    model: RandomModel,
    exits: tuple[int, ...],
    leaves: Leaving,
    batching: str = "ready",
    slots: int = 4,
) -> Decoder:
    heads = [replace(head, margin=True) for head in model.heads(exits)]
    executor = kind(model.weights, model.architecture, heads, slots=slots, max_len=80)
    leaving = EarlyExits(executor, ToldRule(leaves), segments(batching, len(exits) + 1))
    return Decoder(executor, leaving=leaving)


def streams(
    model: RandomModel, stops: frozenset[int] = frozenset(), sampling: TokenSampling = GREEDY
) -> list[Stream]:
    draw = random.Random(4)
    vocabulary = model.architecture.vocabulary
    return [
        Stream(
            f"{'x' * (number % 2)}{number}",
            tuple(draw.randrange(vocabulary) for _ in range(length)),
            MOST - 3 * number,
            stops,
            replace(sampling, seed=number),
        )
        for number, length in enumerate(LENGTHS)
    ]


def run(decoder: Decoder, wanted: Sequence[Stream]) -> tuple[dict[str, list[int]], Counter[str]]:
    """Texts and counts; one stream more arrives every few steps."""
    texts: dict[str, list[int]] = {stream.id: [] for stream in wanted}
    counts: Counter[str] = Counter()
    waiting, step = list(wanted), 0
    while any(stream.finished is None for stream in wanted):
        if waiting and step % 3 == 0:
            decoder.add(waiting.pop(0))
        for output in decoder.step():
            texts[output.id] += output.tokens
            counts.update({name: int(count) for name, count in output.counts.items()})
        step += 1
        assert step < 10_000
    return texts, counts
