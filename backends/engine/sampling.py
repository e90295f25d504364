"""Choosing the next token from logits. A choice depends on logits, seed and position alone.

So a request's text does not depend on its neighbours, and a verified draft ends in the very token
that plain decoding would have drawn (algorithm: "sample and compare", exact for any draft).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class TokenSampling:
    """Temperature 0 is greedy decoding; `top_p` keeps the most probable tokens up to that mass."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


GREEDY = TokenSampling()


def select(logits: Tensor, sampling: TokenSampling, position: int) -> int:
    """The token at `position` of the sequence, from its (vocabulary,) float32 logits.

    Greedy takes the lowest id of equal maxima. Sampling inverts the distribution function at a
    number in [0, 1) that seed and position determine.
    """
    if sampling.temperature == 0:
        return int(torch.argmax(logits))
    probabilities = torch.softmax(logits.double() / sampling.temperature, 0)
    order = None
    if sampling.top_p < 1:
        probabilities, order = torch.sort(probabilities, descending=True, stable=True)
        before = torch.cumsum(probabilities, 0) - probabilities
        probabilities = probabilities.masked_fill(before >= sampling.top_p, 0.0)
    mass = torch.cumsum(probabilities, 0)
    point = uniform(sampling.seed, position) * float(mass[-1])
    place = int(torch.searchsorted(mass, point, right=True))
    # rounding may leave the point at the very end, where no probability is
    place = min(place, int(torch.nonzero(probabilities)[-1]))
    return place if order is None else int(order[place])


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) of 53 bits for a seed and a position (SplitMix64, Steele et al. 2014)."""
    state = _mix(seed & _MASK) ^ (position * 0x9E3779B97F4A7C15 & _MASK)
    return (_mix(state) >> 11) / (1 << 53)


def _mix(state: int) -> int:
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
    return state ^ (state >> 31)
