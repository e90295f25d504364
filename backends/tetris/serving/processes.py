"""The stages' processes of a decoder, with the states that pass between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from backends.engine.model.architecture import Architecture
from backends.tetris.pipeline.replicas import numbered, worker_names
from backends.tetris.serving import stage
from backends.tetris.serving.cut_plan import NAME, CutPlan
from backends.tetris.serving.jobs import (
    SharedStates,
    StageDone,
    StageJob,
    StageSetup,
    booked,
    with_states,
)
from backends.tetris.workers.options import is_here, place_of
from backends.tetris.workers.piped_stages import PipedStages


class StageProcesses(PipedStages[StageSetup, Any, Any]):
    """One process for each worker; to `EngineBackend` they are an executor. Those of this machine
    share their states' memory; to actors states are sent, and come back.

    Args:
        setup: of the first worker; those of the others differ in their numbers alone.
        architecture: the whole model's.

    Raises:
        UserError: for what a stage cannot take.
        StageDiedError: when a process ends while it opens its layers.
    """

    trees = None

    def __init__(self, setup: StageSetup, architecture: Architecture) -> None:
        self.architecture = architecture
        self.max_len: int = setup.options["max_model_len"]
        self.states = SharedStates(setup.states)
        self._sent: dict[int, StageJob] = {}
        """To stages that share no memory."""
        self._is_shared = setup.options["ray"] is None
        needed = [setup.model_dir]
        if not is_here(setup.options):
            needed += CutPlan(setup.model_dir, setup.options).files()
        workers = setups(setup)
        self._stage_of = [one.index for one in workers]
        try:
            place = place_of(
                NAME,
                stage.__name__,
                setup.options,
                shared=[self.states.number],
                needed=needed,
            )
        except BaseException:
            self.states.close()
            raise
        names = worker_names(setup.states.replicas)
        super().__init__(NAME, place, workers, setup.options["answered_within_s"], names)

    def send(self, index: int, job: StageJob, *, hurry: bool = True) -> None:
        """See `PipedStages.send`."""
        if self._is_shared:
            super().send(index, job, hurry=hurry)
            return
        self._sent[index] = job
        super().send(index, with_states(job, self._stage_of[index], self.states), hurry=hurry)

    def receive(self, index: int) -> StageDone:
        """See `PipedStages.receive`."""
        answer = super().receive(index)
        if self._is_shared:
            done: StageDone = answer
            return done
        return booked(self._sent.pop(index), self._stage_of[index], answer, self.states)

    def close(self) -> None:
        """End all processes."""
        super().close()
        self.states.close()


def setups(first: StageSetup) -> list[StageSetup]:
    """Of all workers, in order, from that of the first."""
    return [
        replace(first, index=index, worker=worker)
        for index, workers in enumerate(numbered(first.states.replicas))
        for worker in workers
    ]
