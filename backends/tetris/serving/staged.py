"""A stream on its way through stages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from backends.engine.executors.base import RING
from backends.engine.streams import Stream


@dataclass(slots=True, eq=False)
class StagedStream:
    """A stream with a slot. `stream.done` counts what each stage has run or filled."""

    stream: Stream
    workers: tuple[int, ...] = ()
    """To whom it belongs, of each stage one."""
    booked: int = 0
    """Prompt tokens that are on their way or through."""
    left: list[int] = field(default_factory=list)
    """Of each position after the prompt that is over: the stage behind which it left."""
    overruled: float | None = None
    """The confidence that was decided beforehand for where the newest position waits."""

    @property
    def first(self) -> int:
        """The first position after the prompt."""
        return len(self.stream.prompt)

    @property
    def newest(self) -> int:
        """The position under way."""
        return len(self.stream.tokens) - 1

    def owed(self, stage: int) -> range:
        """Positions that are over, and that a stage has not done."""
        return range(max(self.stream.done[stage], self.first), self.newest)

    def has_room(self) -> bool:
        """Whether the newest position writes over no state that a stage still owes."""
        stages = range(1, len(self.stream.done))
        return all(len(self.owed(stage)) < RING for stage in stages)

    def left_before(self, position: int, stage: int) -> int | None:
        """The stage behind which a position left, if that is before `stage`; None: it ran there."""
        place = position - self.first
        if not 0 <= place < len(self.left) or self.left[place] >= stage:
            return None
        return self.left[place]


@dataclass(slots=True, eq=False)
class DraftedStream(StagedStream):
    """A stream whose tokens behind those that the last stage has verified are drafts."""

    at_work: dict[int, RunSpan] = field(default_factory=dict)
    """By stage, what of it is being run."""
    sources: dict[int, int] = field(default_factory=dict)
    """By position, the stage that drafted the token there."""
    checks: Counter[int] = field(default_factory=Counter)
    """By stage, how often it was asked since the last verification."""
    told: dict[int, float] = field(default_factory=dict)
    """By stage, the confidence that was decided beforehand for what it is asked."""

    def cut_off(self, position: int) -> None:
        """The token at a position is another one: what rested on it is to be run again."""
        self.stream.done = [min(done, position) for done in self.stream.done]
        self.told.clear()
        for span in self.at_work.values():
            span.end = min(span.end, position)


@dataclass(slots=True, eq=False)
class RunSpan:
    """Positions of a stream that a stage is running."""

    one: DraftedStream
    start: int
    end: int
    """Less once a draft has fallen on which those behind it rested."""
    asked: bool = False
    """Whether the newest of them may be followed by a draft."""
    rows: int = field(init=False)
    """As many as are run."""

    def __post_init__(self) -> None:
        self.rows = self.end - self.start
