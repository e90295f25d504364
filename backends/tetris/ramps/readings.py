"""What a ramp says of inputs: label, probability, entropy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RampReading:
    """Of one input: the most probable label's number, its probability from 0 to 1, and the entropy
    of all labels in nats, from 0 to ln(labels)."""

    label: int
    probability: float
    entropy: float


def read(logits: NDArray[np.floating]) -> list[RampReading]:
    """Readings of (n, labels) logits, computed in float64. Of equal logits the first counts."""
    shifted = np.asarray(logits, np.float64)
    shifted = shifted - shifted.max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    totals = weights.sum(axis=1)
    entropy = np.log(totals) - (weights * shifted).sum(axis=1) / totals
    labels = shifted.argmax(axis=1)
    return [
        RampReading(int(label), float(1.0 / total), max(float(nats), 0.0))
        for label, total, nats in zip(labels, totals, entropy, strict=True)
    ]
