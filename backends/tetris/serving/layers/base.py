"""What a stage asks of the code that runs its layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from backends.engine.executors.base import Int32, StepRows

Hidden = NDArray[np.float32]
Confidence = Callable[[StepRows, Hidden | None, Hidden], Any]
"""Of rows, the states with which they entered the stage and those with which they left it."""


class StageLayers(Protocol):
    """Some of a model's layers, with the cache of their keys and values and a head behind them.

    A row's numbers are those of an executor with all layers, whatever its company: a cut changes no
    text.
    """

    device: str

    def run(
        self, rows: StepRows, states: Hidden | None, wanted: Int32, *, is_prompt: bool = False
    ) -> tuple[list[int], list[float]]:
        """All layers of the stage, then its head on the rows whose numbers are `wanted`
        (ascending).

        Args:
            rows: each slot's positions follow those that were run or filled before.
            states: (n, width) that they begin with; None: their tokens' embeddings.
            is_prompt: the rows are of prompts, which some kernels read by other calls than tokens;
                on a GPU all of theirs, since a prompt's rounding depends on where it is cut.

        Returns:
            The most probable tokens and their probabilities, from a head with `margin` how far
            those are above the second's.
        """

    def fill_from(self, rows: StepRows, states: Hidden) -> None:
        """The keys and values that each layer computes of states (n, width) that left the model
        before the stage, and nothing else."""

    def left(self, rows: StepRows) -> Hidden:
        """(n, width): what the rows were when they left the stage, however long ago."""

    def exit_head(self, index: int, rows: StepRows) -> tuple[list[int], list[float]]:
        """See `Executor.exit_head`; the index is 0."""

    def logits(self, rows: StepRows) -> Tensor:
        """See `Executor.logits`: behind the stage."""

    def release(self, slot: int, length: int) -> None:
        """See `Executor.release`."""

    def wait(self) -> None:
        """Until the device has done all it was told."""
