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
from collections import Counter
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
    sides = np.arange(differ.shape[1]) < of_base
    seen = int(differ[:, sides][:, :, ~sides].sum())
    found = Counter(tuple(chances) for chances in _of_rows(differ, of_base))
    size = 1 + sum((len(chances) - 1) * count for chances, count in found.items())
    length = 1 << (size - 1).bit_length()
    # a sum's distribution is the convolution of its terms', which is a product here
    spectrum = np.ones(length // 2 + 1, complex)
    for chances, count in found.items():
        spectrum *= np.fft.rfft(chances, length) ** count
    return min(1.0, max(LEAST, float(np.fft.irfft(spectrum, length)[seen:size].sum())))


def _of_rows(differ: Ints, of_base: int) -> Iterator[list[float]]:
    """Of each row the chances of 0, 1, ... differing pairs."""
    repeats, draw = differ.shape[1], np.random.default_rng(_SEED)
    if (count := math.comb(repeats, of_base)) <= MOST_WAYS:
        ways = np.zeros((count, repeats))
        each = [*itertools.combinations(range(repeats), of_base)]
        np.put_along_axis(ways, np.array(each), 1.0, axis=1)
        kinds, of_kind = np.unique(_sorted(differ), axis=0, return_counts=True)
        for kind, rows in zip(kinds, of_kind.tolist(), strict=True):
            yield from itertools.repeat(_chances(ways, kind), rows)
        return
    seen = np.arange(repeats) < of_base
    for row in differ:
        # with the one that was seen, drawn ways are as good as all: where answers are alike it is
        # any of them, in each row, so that p keeps its level (Phipson and Smyth 2010, Statistical
        # Applications in Genetics and Molecular Biology 9:39)
        drawn = draw.permuted(np.tile(seen, (MOST_WAYS - 1, 1)), axis=1)
        yield _chances(np.concatenate([seen[None], drawn]).astype(float), row)


def _sorted(differ: Ints) -> Ints:
    """With each row's repeats in another order, by how many answers equal theirs and then by the
    first of these: which repeats are alike has no part in the chances, so that few kinds of rows
    are left."""
    equal = differ == 0
    order = np.lexsort((equal.argmax(axis=2), equal.sum(axis=2)), axis=1)
    rows = np.arange(len(differ))[:, None, None]
    found: Ints = differ[rows, order[:, :, None], order[:, None, :]]
    return found


def _chances(ways: Floats, row: Ints) -> list[float]:
    pairs = ((ways @ row) * (1 - ways)).sum(axis=1).round().astype(np.int64)
    found: list[float] = (np.bincount(pairs) / len(pairs)).tolist()
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
