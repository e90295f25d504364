"""The process of a worker: it opens its layers and runs one batch after another."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.tetris.labels.jobs import (
    LabelCostsJob,
    LabelJob,
    LabelStageSetup,
    packed,
    unpacked,
)
from backends.tetris.workers.piped_stages import serve

if TYPE_CHECKING:
    from backends.classifiers.models.base import RampedClassifier

CLOCKED = 5
"""Batches in which layers are told apart."""


class LabelStage:
    """Runs the batches. Raises `UserError` for weights that do not fit."""

    def __init__(self, setup: LabelStageSetup) -> None:
        import torch

        from backends.classifiers.weights import drop_outside, load
        from backends.tetris.ramps.wrapper import ExitWrapper

        torch.set_num_threads(setup.threads)
        self._model: RampedClassifier = load(Path(setup.model_dir), setup.dtype)
        self._wrapper = ExitWrapper(
            setup.rule, self._model.ramps, setup.ends, black_box=setup.black_box
        )
        drop_outside(self._model, setup.first, setup.last)

    def do(self, job: LabelJob) -> LabelJob:
        """Run a batch through the stage; only those who go on keep a state."""
        from backends.classifiers.spans import run_span

        begin = time.perf_counter_ns()
        (first, last), inputs = job.span, unpacked(job)
        run_span(self._model, self._wrapper, inputs, first, last)
        goes_on = []
        for one in inputs:
            if self._wrapper.leaves(last, one.memory):
                one.state = None
            elif one.state is not None:
                goes_on.append(one)
        order = [*goes_on, *(one for one in inputs if one.state is None)]
        busy_us = (time.perf_counter_ns() - begin) / 1e3
        return packed(order, job.span, busy_us)

    def costs(self, job: LabelCostsJob) -> dict[str, Any]:
        """Milliseconds for the last of `batches`: `layer_ms`, over which all ramps are spread, and
        `outside_ms` of a stage, beside them. `time_share` of each batch, and `state_bytes` of the
        last. All is timed in turns, as jobs that come and go."""
        from backends.classifiers.measured import state_bytes
        from backends.classifiers.part_times import ENTER, FINAL, PartClock
        from backends.tetris.measured import lower_quartiles_ms

        model, count = self._model, job.batches[-1]
        middle, depth = max(1, model.depth // 2), model.depth
        jobs = [self._timed(job.prompts[:some], 0, depth) for some in job.batches]
        jobs += [self._timed(job.prompts[:count], *span) for span in ((0, middle), (middle, depth))]
        *whole, first, second = lower_quartiles_ms([partial(self._anew, one) for one in jobs])
        self._model = clock = PartClock(model)
        for _ in range(CLOCKED):
            self._anew(jobs[len(job.batches) - 1])
        self._model, took = model, clock.means_ms()
        parts = np.array([took[number] for number in range(1, depth + 1)])
        parts[[0, -1]] += took[ENTER], took[FINAL]
        outside = min(max(0.0, first + second - whole[-1]), whole[-1] / 2)
        least = np.minimum.accumulate(whole[::-1])[::-1]
        return {
            "layer_ms": (parts * (least[-1] - outside) / parts.sum()).tolist(),
            "outside_ms": outside,
            "time_share": dict(zip(job.batches, (least / least[-1]).tolist(), strict=True)),
            "state_bytes": state_bytes(model, job.prompts[:count]),
        }

    def _timed(self, prompts: Sequence[tuple[int, ...]], first: int, last: int) -> LabelJob:
        """All of the prompts at this stage, whoever would have left before."""
        from backends.classifiers.flight import InputInFlight
        from backends.classifiers.spans import run_span
        from backends.tetris.ramps.wrapper import ExitWrapper

        inputs = [InputInFlight("", ids) for ids in prompts]
        if first:
            run_span(self._model, ExitWrapper(None, (), ()), inputs, 0, first)
        return packed(inputs, (first, last))

    def _anew(self, job: LabelJob) -> LabelJob:
        """A job of which nothing has been decided: who is sure already is not judged again."""
        from backends.classifiers.flight import InputInFlight

        inputs = tuple(InputInFlight("", one.prompt_ids) for one in job.inputs)
        return self.do(replace(job, inputs=inputs))

    def answer(self, job: Any) -> Any:
        """To whatever it may be asked; of bytes only that they came."""
        if isinstance(job, LabelCostsJob):
            return self.costs(job)
        return self.do(job) if isinstance(job, LabelJob) else None


def main(descriptor: int) -> None:
    """Talk to the pipeline through this file descriptor: first the setup, answered by None or by
    what was refused, then jobs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Connection(descriptor), lambda setup: LabelStage(setup).answer)
