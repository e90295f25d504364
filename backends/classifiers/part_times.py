"""A network that notes how long its parts take where a backend runs them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from backends.classifiers.models.base import RampedClassifier, RowState

if TYPE_CHECKING:
    from torch import Tensor

ENTER, FINAL = "enter", "final"
Part = str | int
"""`ENTER`: states before the first layer, and their batch. A layer's number. `FINAL`: the
classifier at the end. Ramps are not told apart from what is around them."""


class PartClock:
    """Runs a network and adds up the seconds of its parts.

    Args:
        network: what runs.
    """

    def __init__(self, network: RampedClassifier) -> None:
        self._network = network
        self.depth, self.ramps = network.depth, network.ramps
        self.classes, self.longest = network.classes, network.longest
        self.vocabulary = network.vocabulary
        self._entered = False
        self.seconds: dict[Part, list[float]] = {}

    def start(self, prompts: Sequence[Sequence[int]]) -> list[RowState]:
        """The states before the first layer."""
        self._entered = True
        found: list[RowState] = self._timed(ENTER, self._network.start, prompts)
        return found

    def gather(self, states: Sequence[RowState]) -> Any:
        """A batch."""
        if not self._entered:
            return self._network.gather(states)
        self._entered = False
        begin = time.perf_counter()
        found = self._network.gather(states)
        self.seconds[ENTER][-1] += time.perf_counter() - begin
        return found

    def layer(self, number: int, batch: Any) -> Any:
        """Run layer `number`, from 1."""
        return self._timed(number, self._network.layer, number, batch)

    def ramp(self, number: int, batch: Any) -> Tensor:
        """Logits of a ramp."""
        return self._network.ramp(number, batch)

    def final(self, batch: Any) -> Tensor:
        """Logits of the classifier at the end."""
        found: Tensor = self._timed(FINAL, self._network.final, batch)
        return found

    def means_ms(self) -> dict[Part, float]:
        """Of each part, but for its first time; begins anew."""
        found = {part: 1e3 * _mean(times[1:] or times) for part, times in self.seconds.items()}
        self.seconds = {}
        return found

    def _timed(self, part: Part, run: Callable[..., Any], *given: Any) -> Any:
        begin = time.perf_counter()
        found = run(*given)
        self.seconds.setdefault(part, []).append(time.perf_counter() - begin)
        return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
