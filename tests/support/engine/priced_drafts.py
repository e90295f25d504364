"""Drafts whose costs and acceptances are chosen by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from backends.engine.drafters.adaptive import AdaptiveDrafts
from backends.engine.streams import Stream


@dataclass
class Priced:
    """A pass costs 100, a draft `draft`, a row `row`, whatever is drafted."""

    draft: float = 10.0
    row: float = 0.0
    read_us: float = 0.0

    def of(
        self, sequences: int, positions: int, tokens: Sequence[float], stands: Sequence[float]
    ) -> list[float]:
        return [
            100 + made * self.draft + self.row * sequences * (1 + sum(tokens[:made]))
            for made in range(len(tokens) + 1)
        ]


class Chance:
    """Drafts as many as it may; each stands with a probability."""

    exits: tuple[int, ...] = ()

    def __init__(self, most: int) -> None:
        self.max_drafts = most
        self.asked: list[tuple[int, int]] = []
        """Of each call, the streams and the drafts that each could have."""

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        self.asked.append((len(streams), self.max_drafts))
        for stream in streams:
            stream.tokens += [1] * min(self.max_drafts, stream.room(self.max_drafts))
        return streams

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        return {"told": accepted}

    def reset(self) -> None:
        self.asked.clear()


def drafted(adaptive: AdaptiveDrafts, inner: Chance, streams: Sequence[Stream]) -> bool:
    """A step's drafts; whether any were asked for, which `inner` notes either way."""
    calls = len(inner.asked)
    adaptive.draft(streams)
    if len(inner.asked) == calls:
        inner.asked.append((len(streams), 0))
    return inner.asked[-1][1] > 0


def play(
    adaptive: AdaptiveDrafts, inner: Chance, chance: float, steps: int, count: int = 1
) -> None:
    """So many steps of some streams that never end."""
    draw = random.Random(3)
    for _ in range(steps):
        streams = [Stream(f"r{n}", (1,), 99, tokens=[1], done=[0], slot=n) for n in range(count)]
        some = drafted(adaptive, inner, streams)
        for stream in streams:
            stood = 0
            while stood < stream.drafts and draw.random() < chance:
                stood += 1
            assert adaptive.verified(stream, stood) == ({"told": stood} if some else {})
            assert some or not stream.drafts


def usual(chance: Chance, last: int = 200) -> int:
    """The number of drafts that was asked for most often of late."""
    asked = [most for _, most in chance.asked[-last:]]
    return max(set(asked), key=asked.count)
