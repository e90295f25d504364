"""How sure each sequence is after a layer: the three confidence measures of the paper.

"An Efficient Inference Framework for Early-exit Large Language Models", section 4.2, after
"Confident Adaptive Language Modeling" (Schuster et al., 2022, section 3.5). All are computed in
float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from backends.kernels.exit_confidence import cosine_rows, linear_probability, top2_margin


@dataclass(slots=True)
class Confidence:
    """What a check found out."""

    confidence: Tensor
    """(rows,) float32."""
    normed: Tensor | None = None
    """(rows, width), the final norm of the hidden state, where it was needed."""
    logits: Tensor | None = None
    """(rows, vocabulary), the exit's next-token logits, where they were needed."""


class Measure(Protocol):
    """A confidence measure. Checks of one step come in ascending order of their layers."""

    reads_embedding: bool
    """Whether each step has to `begin`."""

    def begin(self, embedded: Tensor) -> None:
        """A step begins with these (rows, width) inputs of the first layer."""

    def __call__(self, layer: int, stream: Tensor) -> Confidence:
        """The confidence of each row from its (rows, width) residual stream after `layer`."""


class Softmax:
    """Top-1 minus top-2 probability of the exit's next token."""

    reads_embedding = False

    def __init__(self, norm: Any, heads: dict[int, Any], shared: Any) -> None:
        self._norm, self._heads, self._shared = norm, heads, shared

    def begin(self, embedded: Tensor) -> None:
        """Nothing to keep."""

    def __call__(self, layer: int, stream: Tensor) -> Confidence:
        """See `Measure`. Through the layer's own trained head where it has one."""
        normed = self._norm(stream)
        logits = self._heads.get(layer, self._shared)(normed)
        return Confidence(top2_margin(logits), normed, logits)


class State:
    """Cosine of the residual stream at successive exits; the first against the embedding."""

    reads_embedding = True

    def __init__(self) -> None:
        self._before: Tensor | None = None

    def begin(self, embedded: Tensor) -> None:
        """Keep the embedding."""
        self._before = embedded

    def __call__(self, layer: int, stream: Tensor) -> Confidence:
        """See `Measure`."""
        assert self._before is not None
        found = cosine_rows(self._before, stream)
        self._before = stream
        return Confidence(found)


class ClassifierMeasure:
    """Probability that the exit already has the last layer's token.

    Of the two logits of a linear layer d -> 2 only the difference matters, so one product with one
    float32 vector (width,) is enough.
    """

    reads_embedding = False

    def __init__(self, weight: Tensor, bias: float) -> None:
        self._weight, self._bias = weight, bias

    def begin(self, embedded: Tensor) -> None:
        """Nothing to keep."""

    def __call__(self, layer: int, stream: Tensor) -> Confidence:
        """See `Measure`."""
        return Confidence(linear_probability(stream, self._weight, self._bias))
