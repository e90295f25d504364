"""Paired speed-up with a bootstrap interval over repeats and requests.

The data of one cell is a matrix of log ratios, one row per repeat and one column per request, NaN
where the pair is missing. The same requests are asked in every repeat, so the two factors are
crossed: each replicate draws repeats with replacement, then requests with replacement, and takes
the drawn requests of every drawn repeat (the pigeonhole bootstrap: Owen 2007, Annals of Applied
Statistics 1:386, section 4). Drawing new requests inside every repeat would treat a request that
is always fast as fresh evidence each time, and give intervals too narrow by sqrt(repeats). Repeats
are few, so R - 1 of R are drawn, which makes the spread between repeats unbiased (Rao and Wu 1988,
Journal of the American Statistical Association 83:231); drawing all R would shrink its variance by
a third at R = 3.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.agreement import pair
from results.arrays import Floats, RequestArrays
from results.latency import tpot_s

Draws = NDArray[np.float32]
RESAMPLES = 2000
SEED = 20260101


@dataclass(frozen=True, slots=True)
class Interval:
    """A geometric mean and its 95% interval; the bounds are None where nothing can be drawn."""

    value: float
    low: float | None
    high: float | None


def log_ratios(this: RequestArrays, reference: RequestArrays) -> Floats:
    """(R,) log(reference's decode time per token / this trial's), request by request.

    Decode time is `tpot_s`: where both answers have equally many tokens after an equal first
    commit this is the plain ratio of decode times, and where lengths differ it compares time per
    token. NaN where either is undefined or zero, or where the reference lacks the request.
    """
    rows, reference_rows = pair(this, reference)
    ours, theirs = _tpot_rows(this)[rows], _tpot_rows(reference)[reference_rows]
    usable = (ours > 0) & (theirs > 0)
    logs = np.full(len(this), np.nan)
    logs[rows[usable]] = np.log(theirs[usable] / ours[usable])
    return logs


def geometric_mean(logs: Floats) -> float | None:
    """exp of the mean of the defined entries; None when there are none."""
    defined = logs[~np.isnan(logs)]
    return math.exp(float(defined.mean())) if len(defined) else None


def speedup_interval(
    logs: Floats, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = SEED
) -> Interval | None:
    """Geometric mean over all pairs of `logs` ((repeats, requests), NaN where missing) with its
    percentile bootstrap interval. None without a pair; no bounds with fewer than two requests.

    Deterministic: the draws depend on the shape of `logs` and on `seed` only.
    """
    logs = logs[~np.isnan(logs).all(axis=1)]
    logs = logs[:, ~np.isnan(logs).all(axis=0)]
    value = geometric_mean(logs.ravel())
    if value is None:
        return None
    repeats, requests = logs.shape
    if requests < 2:
        return Interval(value, None, None)
    draws = (
        _draws(repeats, max(1, repeats - 1), resamples, seed + 1),
        _draws(requests, requests, resamples, seed),
    )
    total = _drawn_sums(np.nan_to_num(logs), *draws)
    if np.isnan(logs).any():
        count = _drawn_sums((~np.isnan(logs)).astype(float), *draws)
    else:
        count = draws[0].sum(axis=1, dtype=float) * requests
    means = total[count > 0] / count[count > 0]
    tail = (1 - level) / 2
    low, high = np.exp(np.quantile(means, [tail, 1 - tail]))
    return Interval(value, float(low), float(high))


def _drawn_sums(values: Floats, repeats: Draws, requests: Draws) -> Floats:
    """(resamples,) sum over each replicate's drawn repeats and requests of `values`.

    einsum instead of a matrix product: BLAS would start threads, which costs more than the sum on
    a busy machine and makes the last digits depend on how many there are.
    """
    sums = np.einsum("bn,rn->br", requests, values.astype(np.float32))
    return np.asarray((sums * repeats).sum(axis=1, dtype=float))


@functools.lru_cache(maxsize=8)
def _draws(count: int, size: int, resamples: int, seed: int) -> Draws:
    """(resamples, count) how often each of `count` items is among `size` drawn with replacement."""
    generator = np.random.default_rng([seed, count, size])
    draws = np.empty((resamples, count), np.float32)
    for row, picks in zip(draws, generator.integers(0, count, (resamples, size)), strict=True):
        row[:] = np.bincount(picks, minlength=count)
    return draws


def _tpot_rows(requests: RequestArrays) -> Floats:
    values = np.full(len(requests), np.nan)
    values[requests.sampled] = tpot_s(requests)
    return values
