"""The stages' processes of a decoder, with the memory that they share."""

from __future__ import annotations

from dataclasses import replace

from backends.engine.model.architecture import Architecture
from backends.tetris.piped_stages import PipedStages
from backends.tetris.pipeline.replicas import numbered
from backends.tetris.serving import stage
from backends.tetris.serving.cut_plan import NAME
from backends.tetris.serving.jobs import SharedStates, StageDone, StageJob, StageSetup


class StageProcesses(PipedStages[StageSetup, StageJob, StageDone]):
    """One process for each worker; to `EngineBackend` they are an executor.

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
        within_s = setup.options["answered_within_s"]
        super().__init__(NAME, stage.__name__, setups(setup), [self.states.number], within_s)

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
