"""The stages that are served: their layers, the workers of each, and who waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.tetris.pipeline.fusion import FusionQueue
from backends.tetris.pipeline.replicas import numbered

WEIGHT = 0.2
"""Of the last batch in the time that a stage's batches take."""


@dataclass(frozen=True, slots=True)
class StageSpan:
    """Layers first..end-1, and the numbers of the workers that each run batches of them."""

    first: int
    end: int
    workers: tuple[int, ...]


@dataclass(slots=True)
class ServedStage:
    """A stage with its queue. `took_ms`: of its batches of late; 0 before the first."""

    span: StageSpan
    queue: FusionQueue
    took_ms: float = field(default=0.0)

    def took(self, ms: float) -> None:
        """A batch's time."""
        self.took_ms += WEIGHT * (ms - self.took_ms) if self.took_ms else ms


def spans(ends: Sequence[int], replicas: Sequence[int]) -> list[StageSpan]:
    """The stages up to each of `ends`, with so many workers, numbered from the first stage on."""
    firsts = (0, *ends[:-1])
    return [
        StageSpan(first, end, tuple(workers))
        for first, end, workers in zip(firsts, ends, numbered(replicas), strict=True)
    ]
