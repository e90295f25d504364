"""Choosing the next token from logits. A choice depends on logits, seed and position alone.

So a request's text does not depend on its neighbours, and a verified draft ends in the very token
that plain decoding would have drawn (algorithm: "sample and compare", exact for any draft).

Sampling is a race: each token has noise of the standard exponential distribution, and the largest
quotient of probability and noise wins. Its logarithm is the sum of log-probability and Gumbel noise
(Gumbel-max). A draft model that samples with the noise of the same seed and position draws the same
token more often than by any other noise shared beforehand: at least (1 - d) / (1 + d) for two
distributions of total variation d, where rejection sampling accepts 1 - d (Daliri et al., 2024,
arXiv 2408.07978).

This is the definition, to the last bit: `backends/kernels/cpu/wide.h` has the same operations in
the same order, each rounded as IEEE 754 says. So logarithm and exponential are written out here (a
library's differ from one version to the next), and masses are whole numbers, whose sum has no
order.
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
_WHOLE = 2.0**44
"""The mass of the most probable token, as a whole number. What has less than one is beyond any
`top_p` below 1."""
_LEAST = -700.0
"""Where the exponential counts as 0, before its exponent runs out. No noise makes up for it: it is
between 1e-16 and 37."""
_LOG_2 = float.fromhex("0x1.62e42fefa39efp-1")
_LOG_2_HIGH = float.fromhex("0x1.62e42ff000000p-1")
"""Few enough bits that its multiples are exact; with `_LOG_2_LOW` it is twice as precise."""
_LOG_2_LOW = float.fromhex("-0x1.718432a1b0e26p-35")
_LOG2_E = float.fromhex("0x1.71547652b82fep+0")
_ROUNDING = 1.5 * 2.0**52
"""Adding it rounds to an integer."""
_HALF_ROOT_2 = float.fromhex("0x1.6a09e667f3bcdp-1")
_FACTORIALS = np.cumprod([1.0, *range(1, 14)])

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TokenSampling:
    """Temperature 0 is greedy decoding; `top_p` keeps the most probable tokens up to that mass."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


GREEDY = TokenSampling()


def select(logits: Tensor, sampling: TokenSampling, position: int) -> int:
    """The token at `position` of the sequence, from its (vocabulary,) float32 logits on the CPU.

    Greedy takes the lowest id of equal maxima. Sampling takes the winner of the race among the
    tokens that `top_p` keeps, of equal ones the lowest id. -1 where the highest logit is NaN, and
    of sampling where it is infinite: then the model has said nothing.
    """
    if sampling.temperature == 0:
        best = int(torch.argmax(logits))
        return -1 if logits[best].isnan() else best
    return draw(logits, sampling, position)[0]


def draw(logits: Tensor, sampling: TokenSampling, position: int) -> tuple[int, float]:
    """What `select` samples, and its probability under the temperature, before `top_p`; -1 and 0
    where no highest logit is finite."""
    weights = weigh(logits.numpy(), sampling.temperature)
    scores = weights / noise(sampling.seed, position, len(weights))
    masses = np.rint(weights * _WHOLE).astype(np.int64)
    total = masses.sum()
    if not total:
        return -1, 0.0
    if sampling.top_p < 1:
        order = np.argsort(-masses, kind="stable")
        before = np.cumsum(masses[order]) - masses[order]
        beyond = before.astype(np.float64) >= sampling.top_p * np.float64(total)
        scores[order[beyond & (before > 0)]] = -1.0
    token = int(np.argmax(scores))
    return token, float(np.float32(masses[token] / total))


def weigh(logits: NDArray[np.float32], temperature: float) -> Float64:
    """(vocabulary,) shares of the most probable token's probability, from float32 logits; NaN and
    what is no number after the highest was subtracted have none."""
    with np.errstate(invalid="ignore", over="ignore"):
        # the highest is 0, however small the temperature
        highest = np.fmax.reduce(logits).astype(np.float64)
        return _exponential((logits.astype(np.float64) - highest) / temperature)


@functools.lru_cache(maxsize=64)
def noise(seed: int, position: int, count: int) -> Float64:
    """(count,) numbers of the standard exponential distribution, for a seed and a position; the
    same numbers begin a longer row. Not to be written to: the last ones are kept, since a draft and
    its verification need the same."""
    return -_logarithm(uniform(seed, position, count))


def uniform(seed: int, position: int, count: int) -> Float64:
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


def _logarithm(x: Float64) -> Float64:
    """Of normal positive numbers: the exponent's, and twice the series of artanh((m - 1) / (m + 1))
    for m between the roots of 1/2 and 2."""
    m, exponent = np.frexp(x)
    small = m <= _HALF_ROOT_2
    m = np.where(small, 2.0 * m, m)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = np.full_like(x, 1.0 / 21)
    for odd in range(19, 1, -2):
        series = series * z + 1.0 / odd
    return np.asarray((exponent - small) * _LOG_2 + (s * z * series + s) * 2.0, np.float64)


def _exponential(x: Float64) -> Float64:
    """Of numbers up to 0, by the series around the nearest multiple of log 2."""
    inside = x >= _LEAST
    x = np.where(inside, x, 0.0)
    n = (x * _LOG2_E + _ROUNDING) - _ROUNDING
    r = (x - n * _LOG_2_HIGH) - n * _LOG_2_LOW
    series = np.full_like(x, 1.0 / _FACTORIALS[13])
    for factorial in _FACTORIALS[12::-1]:
        series = series * r + 1.0 / factorial
    return np.where(inside, np.ldexp(series, n.astype(np.int32)), 0.0)
