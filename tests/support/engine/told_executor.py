"""An executor without a model: what every head says is told beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from backends.engine.executors.base import Int32, StepRows

Guess = tuple[int, float]
"""A token and its probability."""


class ToldExecutor:
    """After position p the last layer says `final[p]`, and exit e says `guesses[e][p]`."""

    device, kernels = "cpu", "told"

    def __init__(
        self,
        final: Sequence[int],
        guesses: Sequence[Mapping[int, Guess]],
        *,
        layers: int = 8,
        exits: tuple[int, ...] = (2,),
    ) -> None:
        self.architecture: Any = SimpleNamespace(layers=layers, vocabulary=100)
        self.exits, self.slots, self.max_len = exits, 2, 64
        self.final, self.guesses = final, guesses
        self.asked: list[tuple[int, int]] = []
        """Exit and position of every check."""
        self.calls: list[list[tuple[int, int]]] = []
        """Slot and position of what each `read` was given."""
        self.piece = 1

    def read(self, rows: StepRows) -> None:
        """The slots and positions of each call."""
        self.calls.append([*zip(rows.slots.tolist(), rows.positions.tolist(), strict=True)])

    def prefill(self, slot: int, token_ids: Sequence[int]) -> None:
        """Nothing to keep."""

    def release(self, slot: int, length: int) -> None:
        """Nothing to give back."""

    def greedy(self, rows: StepRows) -> list[int]:
        """What the last layer says."""
        return [self.final[p] for p in rows.positions.tolist()]

    def advance(self, index: int, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        """What the heads say on the rows wanted; nothing is sure unless told."""
        places = [rows.positions.tolist()[row] for row in wanted.tolist()]
        if index == len(self.exits):
            return [self.final[p] for p in places], [1.0] * len(places)
        self.asked += [(index, p) for p in places]
        said = [self.guesses[index].get(p, (0, 0.0)) for p in places]
        return [token for token, _ in said], [sure for _, sure in said]

    def whole(self, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        """What the last layer says on the rows wanted."""
        return self.advance(len(self.exits), rows, wanted)
