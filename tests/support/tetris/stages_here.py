"""The stages of `tetris` in this process, where a GPU or its interpreter is."""

from __future__ import annotations

from collections.abc import Collection

from backends.engine.model.architecture import Architecture
from backends.tetris.serving.jobs import SharedStates, StageDone, StageJob, StageSetup
from backends.tetris.serving.processes import setups
from backends.tetris.serving.stage import Stage
from backends.tetris.workers.piped_stages import StageDiedError


class StagesHere:
    """To a `StagePipeline` its processes. Each job is done when its answer is heard."""

    trees = None

    def __init__(self, setup: StageSetup, architecture: Architecture) -> None:
        self.architecture = architecture
        self.max_len: int = setup.options["max_model_len"]
        self.states = SharedStates(setup.states)
        self._setups = setups(setup)
        self._stages = [Stage(one, self.states) for one in self._setups]
        self._jobs: dict[int, StageJob] = {}
        self.dying = set[int]()
        """Workers that die at their next jobs."""

    def send(self, index: int, job: StageJob) -> None:
        """See `PipedStages.send`."""
        self._jobs[index] = job

    def ready(self, busy: Collection[int], timeout_s: float | None = None) -> list[int]:
        """All of them."""
        return sorted(busy)

    def receive(self, index: int) -> StageDone:
        """See `PipedStages.receive`."""
        job = self._jobs.pop(index)
        if index in self.dying:
            self.dying.remove(index)
            raise StageDiedError("here", index, "ended")
        return self._stages[index].do(job)

    def restart(self, index: int) -> None:
        """See `PipedStages.restart`."""
        self._stages[index] = Stage(self._setups[index], self.states)

    def close(self) -> None:
        """Give the memory back."""
        self._stages.clear()
        self.states.close()
