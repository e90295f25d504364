"""Whether answers of two runs could have been given in any order of their repeats.

Where NEW answers as BASE does, which of a request's answers are BASE's and which NEW's is a matter
of chance, however often its answer flips: each way to share them out is as likely. How many pairs
of a BASE's and a NEW's answer differ, summed over the requests, is compared with what it would be
if they were shared out anew, each data row by itself (a permutation test: Pitman 1937, Supplement
to the Journal of the Royal Statistical Society 4:119). How often answers flip does not matter; that
those of different rows flip independently of one another does.

So the sum's distribution is that of independent numbers, one of each row, and is computed from
theirs and not drawn: of 9,999 draws no p is below 0.0001, which nothing is left of after Holm's
correction over a hundred rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from results.metrics.arrays import Floats, Ints

MOST_WAYS = 20_000
"""To share a row's answers out, all of which are looked at; of more so many are drawn. 8 repeats
and 8 have 12,870."""
LEAST = 1e-12
"""What a smaller p is told as: the sum of its rounding errors."""
_SEED = 20260727


def p_exchanged(answers: Ints, of_base: int, rows: Ints | None = None) -> float:
    """The chance of as many differing pairs or more, between `LEAST` and 1.

    Args:
        answers: (repeats of both, requests), equal numbers for equal answers.
        of_base: how many repeats, the first ones, are BASE's.
        rows: (requests,) the data row of each; None where each request asks its own.
    """
    differ = _pairs_that_differ(answers, rows)
    if not len(differ):
        return 1.0
    found = [*_pairs_by_row(differ, of_base)]
    seen = sum(int(pairs[0]) * count for pairs, count in found)
    size = 1 + sum(int(pairs.max()) * count for pairs, count in found)
    # a sum's distribution is the convolution of its terms', which is a product here
    spectrum = np.ones(size // 2 + 1, complex)
    for pairs, count in found:
        spectrum *= np.fft.rfft(np.bincount(pairs, minlength=size) / len(pairs)) ** count
    chances = np.fft.irfft(spectrum, size)
    return min(1.0, max(LEAST, float(chances[seen:].sum())))


def _pairs_by_row(differ: Ints, of_base: int) -> Iterator[tuple[Ints, int]]:
    """(ways,) how many pairs differ, in the way that was seen first, and of how many rows."""
    repeats, chance = differ.shape[1], np.random.default_rng(_SEED)
    seen = np.arange(repeats) < of_base
    if math.comb(repeats, of_base) <= MOST_WAYS:
        ways = np.zeros((math.comb(repeats, of_base), repeats))
        each = [*itertools.combinations(range(repeats), of_base)]
        np.put_along_axis(ways, np.array(each), 1.0, axis=1)
        for row, count in zip(*np.unique(differ, axis=0, return_counts=True), strict=True):
            yield _pairs(ways, row), int(count)
        return
    for row in differ:
        # with the one that was seen, drawn ways are as good as all: where answers are alike it is
        # any of them, in each row, so that p keeps its level (Phipson and Smyth 2010, Statistical
        # Applications in Genetics and Molecular Biology 9:39)
        drawn = chance.permuted(np.tile(seen, (MOST_WAYS - 1, 1)), axis=1)
        yield _pairs(np.concatenate([seen[None], drawn]).astype(float), row), 1


def _pairs(ways: Floats, row: Ints) -> Ints:
    found: Ints = ((ways @ row) * (1 - ways)).sum(axis=1).round().astype(np.int64)
    return found


def _pairs_that_differ(answers: Ints, rows: Ints | None) -> Ints:
    """(rows, repeats, repeats) how many of a row's requests two repeats answer differently, of rows
    with such a request."""
    columns = answers.T
    differ = (columns[:, :, None] != columns[:, None, :]).astype(np.int64)
    if rows is not None:
        summed = np.zeros((int(rows.max()) + 1, *differ.shape[1:]), np.int64)
        np.add.at(summed, rows, differ)
        differ = summed
    kept: Ints = differ[differ.any(axis=(1, 2))]
    return kept
