"""What each stage of a pipeline has done, as counts that go out with tokens.

A pass is of many requests, so what is counted is the pipeline's, and goes out with whichever token
is told next. Only the sums over a trial mean anything (see `results.metrics.stages`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from backends.tetris.serving.jobs import StageDone
from backends.tetris.serving.prompt_queues import Assigned


class StageCounts:
    """Sums since they were last taken.

    Args:
        layers: of each stage.
        workers: of each stage; of one that has several their time is told.
    """

    def __init__(self, layers: Sequence[int], workers: Sequence[int]) -> None:
        self._layers, self._workers = layers, workers
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._sums: dict[str, float] = {}
        self._since_ns: int | None = None

    def begin(self) -> None:
        """A stream has come: since the first one workers could have worked."""
        if self._since_ns is None:
            self._since_ns = time.monotonic_ns()

    def done(self, stage: int, assigned: Assigned, answer: StageDone) -> None:
        """A worker of a stage has done what it was asked."""
        rows = 0 if assigned.piece is not None else len(assigned.job.rows)
        self._add("filled", stage, len(assigned.job.fills))
        if not rows:
            self._add("other_us", stage, answer.busy_us)
            return
        self._add("passes", stage, 1)
        self._add("rows", stage, rows)
        self._add("layers", stage, rows * self._layers[stage])
        if not assigned.spans:  # where all go through all stages nobody leaves
            self._add("left", stage, sum(token is not None for token in answer.tokens))
        self._add("pass_us", stage, answer.busy_us)

    def replaced(self, stage: int) -> None:
        """Another process has taken the place of one of its processes."""
        self._add("replaced", stage, 1)

    def take(self) -> dict[str, float]:
        """All sums by name, ``stage_NAME_I`` with stages from 1, and begin anew."""
        if self._sums and self._since_ns is not None:
            before, self._since_ns = self._since_ns, time.monotonic_ns()
            for stage, count in enumerate(self._workers):
                if count > 1:
                    self._add("worker_us", stage, count * (self._since_ns - before) / 1000)
        found, self._sums = self._sums, {}
        return found

    def _add(self, name: str, stage: int, value: float) -> None:
        if value:
            name = f"stage_{name}_{stage + 1}"
            self._sums[name] = self._sums.get(name, 0.0) + value
