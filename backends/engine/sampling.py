"""Choosing the next token from logits. A choice depends on logits, seed and position alone.

So a request's text does not depend on its neighbours, and a verified draft ends in the very token
that plain decoding would have drawn (algorithm: "sample and compare", exact for any draft).

Sampling takes the largest sum of log-probability and Gumbel noise (Gumbel-max). A draft model that
samples with the noise of the same seed and position draws the same token more often than by any
other noise shared beforehand: at least (1 - d) / (1 + d) for two distributions of total variation
d, where rejection sampling accepts 1 - d (Daliri et al., 2024, arXiv 2408.07978).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class TokenSampling:
    """Temperature 0 is greedy decoding; `top_p` keeps the most probable tokens up to that mass."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


GREEDY = TokenSampling()


def select(logits: Tensor, sampling: TokenSampling, position: int) -> int:
    """The token at `position` of the sequence, from its (vocabulary,) float32 logits on the CPU.

    Greedy takes the lowest id of equal maxima. Sampling takes the maximum of logits over the
    temperature and noise, among the tokens that `top_p` keeps.
    """
    if sampling.temperature == 0:
        return int(torch.argmax(logits))
    wide = logits.double()
    # the highest is 0, however small the temperature
    scaled = (wide - wide.max()) / sampling.temperature
    noisy = scaled + gumbel(sampling.seed, position, len(logits))
    if sampling.top_p < 1:
        probabilities, order = torch.sort(torch.softmax(scaled, 0), descending=True, stable=True)
        before = torch.cumsum(probabilities, 0) - probabilities
        noisy[order[before >= sampling.top_p]] = -torch.inf
    return int(torch.argmax(noisy))


@functools.lru_cache(maxsize=64)
def gumbel(seed: int, position: int, count: int) -> Tensor:
    """(count,) float64 of the standard Gumbel distribution, for a seed and a position; the same
    numbers begin a longer row. Not to be written to: the last ones are kept, since a draft and its
    verification need the same."""
    return torch.from_numpy(-np.log(-np.log(uniform(seed, position, count))))


def uniform(seed: int, position: int, count: int) -> NDArray[np.float64]:
    """(count,) numbers between 0 and 1, neither included, of 52 bits (SplitMix64, Steele et al.
    2014, as a hash)."""
    start = _mixed(np.uint64(seed & _MASK)) ^ np.uint64(position * GOLDEN & _MASK)
    with np.errstate(over="ignore"):
        states = _mixed(start) + np.arange(count, dtype=np.uint64) * np.uint64(GOLDEN)
    bits = (_mixed(states) >> np.uint64(12)).astype(np.float64)
    return np.asarray((bits + 0.5) / (1 << 52), np.float64)


def _mixed(state: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        mixed = np.asarray(state + np.uint64(GOLDEN), np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)), np.uint64)
