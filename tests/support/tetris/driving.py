"""Pipelines of played stages, driven through loads of streams that come now and then."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from backends.early_exit.policy import ExitPolicy
from backends.engine.streams import Output, Stream
from backends.own.exits.rule import SequenceRule
from backends.tetris.serving.pipeline import StagePipeline
from tests.support.tetris.mortal_stages import alone

EACH_LAYERS = 2
"""Of a stage."""
LONGEST = 30
"""Of the prompts."""
ENDLESS = 10**9


@dataclass(frozen=True)
class DrivenLoad:
    """What came of one load."""

    told: dict[str, list[Output]]
    """By stream."""
    left: dict[str, list[int]]
    """By stream, behind which stage each token of the whole answer but the first leaves."""
    whole: bool
    """Whether it was driven to its end."""


def rule_of(bounds: tuple[float, ...]) -> tuple[SequenceRule, tuple[int, ...]]:
    """Of one stage more than bounds: when a sequence leaves, and the stages' layers."""
    cuts = tuple(EACH_LAYERS * (place + 1) for place in range(len(bounds)))
    depth = EACH_LAYERS * (len(bounds) + 1)
    rule = SequenceRule(ExitPolicy("softmax", cuts, bounds), depth, cuts)
    return rule, (EACH_LAYERS,) * (len(bounds) + 1)


def loads(
    pipeline: StagePipeline,
    draw: random.Random,
    stream: Callable[[random.Random, str], Stream],
    bounds: tuple[float, ...],
    words: int,
    seed: int,
) -> Iterator[DrivenLoad]:
    """Three loads, one after the other: what each stream was told is the beginning of the answer
    that one process with these bounds gives, and all of it where the load came to its end. `seed`
    is for messages."""
    for trial in range(3):
        streams = [stream(draw, f"{trial}.{n}") for n in range(draw.randint(1, 9))]
        # slots that are given back in the middle are used by the next trial
        most = draw.choice([ENDLESS, ENDLESS, draw.randint(1, 60)])
        told, left = driven(pipeline, streams, draw, most), {}
        for one in streams:
            answer, left[one.id] = alone(one.prompt, one.max_new_tokens, one.stops, bounds, words)
            so_far = [token for output in told[one.id] for token in output.tokens]
            assert so_far == answer[: len(so_far)], (seed, trial)
            if most == ENDLESS:
                assert so_far == answer, (seed, trial)
        yield DrivenLoad(told, left, most == ENDLESS)
        pipeline.reset()


def driven(
    pipeline: StagePipeline, streams: Sequence[Stream], draw: random.Random, most: int
) -> dict[str, list[Output]]:
    """Streams that come now and then, until all are over or there were so many steps."""
    coming, ended = list(streams), 0
    told: dict[str, list[Output]] = defaultdict(list)
    for _ in range(most):
        if ended == len(streams):
            break
        while coming and draw.random() < 0.5:
            pipeline.add(coming.pop(0))
        outputs = pipeline.step()
        assert outputs or coming, "stuck"
        for output in outputs:
            told[output.id].append(output)
            ended += output.finished is not None
    return told
