"""The process of one stage: it opens its layers and runs one batch after another."""

from __future__ import annotations

import contextlib
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

from backends.tetris.labels.jobs import LabelJob, LabelStageSetup, packed, unpacked
from harness.core.errors import UserError


class LabelStage:
    """Runs the batches. Raises `UserError` for weights that do not fit."""

    def __init__(self, setup: LabelStageSetup) -> None:
        import torch

        from backends.classifiers.weights import drop_outside, load
        from backends.tetris.ramps.wrapper import ExitWrapper

        torch.set_num_threads(setup.threads)
        self._first, self._last = setup.first, setup.last
        self._model = load(Path(setup.model_dir), setup.dtype)
        self._wrapper = ExitWrapper(
            setup.rule, self._model.ramps, setup.ends, black_box=setup.black_box
        )
        drop_outside(self._model, setup.first, setup.last)

    def do(self, job: LabelJob) -> LabelJob:
        """Run a batch through the stage; only those who go on keep a state."""
        from backends.classifiers.spans import run_span

        begin = time.perf_counter_ns()
        inputs = unpacked(job)
        run_span(self._model, self._wrapper, inputs, self._first, self._last)
        goes_on = []
        for one in inputs:
            if self._wrapper.leaves(self._last, one.memory):
                one.state = None
            elif one.state is not None:
                goes_on.append(one)
        order = [*goes_on, *(one for one in inputs if one.state is None)]
        busy_us = (time.perf_counter_ns() - begin) / 1e3
        return packed(order, busy_us)


def main(descriptor: int) -> None:
    """Talk to the pipeline through this file descriptor: first the setup, answered by None or by
    what was refused, then jobs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, OSError), Connection(descriptor) as channel:
        try:
            stage = LabelStage(channel.recv())
        except UserError as error:
            channel.send(str(error))
            return
        channel.send(None)
        while True:
            channel.send(stage.do(channel.recv()))
