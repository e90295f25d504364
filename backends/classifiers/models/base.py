"""What a network with ramps offers to whoever runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # the command line asks for the backends' options, and needs no torch for that
    from torch import Tensor


@dataclass(slots=True)
class RowState:
    """The hidden state of one input between two layers. Its shape does not depend on who ran with
    it."""

    hidden: Tensor
    length: int
    """Tokens of the input that are no padding."""


class LayerBatch(Protocol):
    """States of several inputs, laid out for a network's layers."""

    def pick(self, places: Sequence[int]) -> LayerBatch:
        """The inputs at these places, ascending."""

    def split(self) -> list[RowState]:
        """The states, one for each input."""


class RampedClassifier(Protocol):
    """A network of `depth` layers with a ramp behind some of them and a classifier at its end."""

    depth: int
    ramps: tuple[int, ...]
    """Numbers of layers behind which a ramp stands, ascending, each below `depth`."""
    classes: int
    longest: int
    """Tokens of an input at most."""
    vocabulary: int

    def start(self, prompts: Sequence[Sequence[int]]) -> list[RowState]:
        """The states before the first layer."""

    def gather(self, states: Sequence[RowState]) -> Any:
        """A batch; states of the same shape must stand together (`by_shape`)."""

    def layer(self, number: int, batch: Any) -> Any:
        """Run layer `number`, from 1."""

    def ramp(self, number: int, batch: Any) -> Tensor:
        """(n, classes) float32 logits of the ramp behind `number` layers."""

    def final(self, batch: Any) -> Tensor:
        """(n, classes) float32 logits of the classifier at the end."""


def by_shape(state: RowState) -> tuple[int, ...]:
    """A key that sorts states of the same shape together."""
    return tuple(state.hidden.shape)


def gathered(network: RampedClassifier, prompts: Sequence[Sequence[int]]) -> tuple[Any, list[int]]:
    """A batch before the first layer, and which prompt each of its inputs is."""
    states = network.start(prompts)
    order = sorted(range(len(states)), key=lambda place: by_shape(states[place]))
    return network.gather([states[place] for place in order]), order
