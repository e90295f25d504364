"""Whether answers of two runs could have been given in any order of their repeats.

Where NEW answers as BASE does, which of a request's answers are BASE's and which NEW's is a matter
of chance, however often its answer flips: each way to share them out is as likely. How many pairs
of a BASE's and a NEW's answer differ, summed over the requests, is compared with what it would be
if they were shared out anew, each data row by itself (a permutation test: Pitman 1937, Supplement
to the Journal of the Royal Statistical Society 4:119). How often answers flip does not matter; that
those of different rows flip independently of one another does.
"""

from __future__ import annotations

import numpy as np

from results.metrics.arrays import Ints

DRAWS = 9_999
_SEED = 20260727
_AT_ONCE = 4_000_000
"""Entries of the largest array at a time."""


def p_exchanged(answers: Ints, of_base: int, rows: Ints | None = None) -> float:
    """The chance of as many differing pairs or more, between 1 / (`DRAWS` + 1) and 1.

    Args:
        answers: (repeats of both, requests), equal numbers for equal answers.
        of_base: how many repeats, the first ones, are BASE's.
        rows: (requests,) the data row of each; None where each request asks its own.
    """
    if not answers.shape[1]:
        return 1.0
    differ = _pairs_that_differ(answers, rows)
    repeats = answers.shape[0]
    sides = np.arange(repeats) < of_base
    seen = int(differ[:, sides][:, :, ~sides].sum())
    if not differ.any():
        return 1.0
    chance = np.random.default_rng(_SEED)
    reached = 0
    step = max(1, _AT_ONCE // (len(differ) * repeats))
    for start in range(0, DRAWS, step):
        drawn = min(step, DRAWS - start)
        shared = chance.permuted(np.tile(sides, (drawn, len(differ), 1)), axis=2).astype(np.int64)
        found = np.einsum("dur,urs,dus->d", shared, differ, 1 - shared, optimize=True)
        reached += int((found >= seen).sum())
    return (1 + reached) / (1 + DRAWS)


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
