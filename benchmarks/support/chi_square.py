"""Whether sampled tokens follow stated probabilities: Pearson's chi-square test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

LEAST_EXPECTED = 5.0
"""Bins that expect less are put together: below it the statistic is not chi-square distributed
(Cochran 1954)."""


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """How well counts fit; `+` joins independent samples."""

    statistic: float
    degrees: int
    tokens: int

    def __add__(self, other: ChiSquare) -> ChiSquare:
        return ChiSquare(
            self.statistic + other.statistic,
            self.degrees + other.degrees,
            self.tokens + other.tokens,
        )

    @property
    def p_value(self) -> float:
        """Probability of a statistic at least this large where the counts do follow the
        probabilities; 1 without degrees of freedom, 0 for a token that cannot be."""
        if self.degrees == 0 or self.statistic == float("inf"):
            return 0.0 if self.statistic == float("inf") else 1.0
        half = torch.tensor([self.degrees / 2, self.statistic / 2], dtype=torch.float64)
        return float(torch.special.gammaincc(half[0], half[1]))


NOTHING = ChiSquare(0.0, 0, 0)


def fit(counts: NDArray[np.int64], probabilities: NDArray[np.float64]) -> ChiSquare:
    """Hold the counts of tokens, (vocabulary,), against probabilities that sum to 1, (vocabulary,).

    Tokens that expect less than `LEAST_EXPECTED` share a bin, which takes the least frequent of
    the others in until it expects as much. A token of probability 0 that was seen makes the
    statistic infinite.
    """
    total = int(counts.sum())
    if (counts[probabilities == 0] > 0).any():
        return ChiSquare(float("inf"), 0, total)
    order = np.argsort(-probabilities, kind="stable")
    expected, seen = probabilities[order] * total, counts[order].astype(float)
    alone = int((expected >= LEAST_EXPECTED).sum())
    while alone > 0 and 0 < expected[alone:].sum() < LEAST_EXPECTED:
        alone -= 1
    bins = np.append(expected[:alone], expected[alone:].sum())
    found = np.append(seen[:alone], seen[alone:].sum())
    kept = bins > 0
    statistic = float(((found[kept] - bins[kept]) ** 2 / bins[kept]).sum())
    degrees = int(kept.sum()) - 1
    return ChiSquare(statistic if degrees > 0 else 0.0, max(degrees, 0), total)


def joined(fits: Iterable[ChiSquare]) -> ChiSquare:
    """All of them as one."""
    return sum(fits, NOTHING)
