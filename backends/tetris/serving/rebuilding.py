"""The keys and values of a worker whose process died, computed again, exactly.

What they follow from is still there: tokens for the first stage, and for the others the states with
which rows left the stages before, each of which keeps those of all its positions. A row's numbers
depend on nothing else, so that no stream goes on in another way than it would have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from backends.engine.executors.base import StepRows
from backends.tetris.serving.jobs import StageJob
from backends.tetris.serving.processes import StageProcesses
from backends.tetris.serving.staged import StagedStream


class Rebuilding:
    """Rebuilds workers, `rows` positions at a time. Nobody may be at work meanwhile."""

    def __init__(self, processes: StageProcesses, rows: int) -> None:
        self._processes, self._rows = processes, rows

    def rebuild(self, stage: int, streams: Iterable[StagedStream]) -> None:
        """Everything that the stage had done of these, which belong to one worker of it. Raises
        `StageDiedError`."""
        for one in streams:
            for start, end in self._pieces(one, stage):
                tokens = one.stream.tokens[start:end]
                rows = StepRows.span(one.stream.slot, start, tokens)
                job = StageJob(rows, is_prompt=start < one.first)
                self._piece(one, stage, one.left_before(start, stage), job)

    def _pieces(self, one: StagedStream, stage: int) -> Iterator[tuple[int, int]]:
        """Ascending positions that came from one stage each, of a prompt or behind it."""
        start, done = 0, one.stream.done[stage]
        for end in range(1, done + 1):
            same = end < done and one.left_before(end, stage) == one.left_before(start, stage)
            same = same and end != one.first
            if not same or end - start == self._rows:
                yield start, end
                start = end

    def _piece(self, one: StagedStream, stage: int, left: int | None, job: StageJob) -> None:
        worker = one.workers[stage]
        if stage == 0:
            self._do(worker, job)
            return
        before = one.workers[stage - 1 if left is None else left]
        self._do(before, StageJob(job.rows, recall=True))
        if left is None:
            self._do(worker, replace(job, source="spare"))
        else:
            self._do(worker, StageJob(fills=job.rows))

    def _do(self, worker: int, job: StageJob) -> None:
        self._processes.send(worker, job)
        self._processes.receive(worker)
