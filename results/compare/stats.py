"""Paired speed-up with a bootstrap interval over repeats and requests.

The data of one cell is a matrix of log ratios, one row per repeat and one column per request, NaN
where the pair is missing. The same requests are asked in every repeat, so the two factors are
crossed: each replicate draws repeats with replacement, then requests with replacement, and takes
the drawn requests of every drawn repeat (the pigeonhole bootstrap: Owen 2007, Annals of Applied
Statistics 1:386, section 4). Drawing new requests inside every repeat would treat a request that
is always fast as fresh evidence each time, and give intervals too narrow by sqrt(repeats). Repeats
are few, so R - 1 of R are drawn, which makes the spread between repeats unbiased (Rao and Wu 1988,
Journal of the American Statistical Association 83:231); drawing all R would shrink its variance by
a third at R = 3. Where a source has fewer rows than there are requests, rows are asked again under
further ids; the second factor is then the row, with all its requests (a cluster bootstrap).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.compare.agreement import pair
from results.metrics.arrays import Floats, Ints, RequestArrays
from results.metrics.latency import tpot_s

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


def matched_log_ratios(this: RequestArrays, reference: RequestArrays, logs: Floats) -> Floats:
    """(R,) `log_ratios`, which are given, with both answers of a pair cut where the shorter one
    ends; `logs` itself where all lengths are equal."""
    rows, others = pair(this, reference)
    shorter = np.minimum(this.tokens[rows], reference.tokens[others])
    differ = (this.tokens[rows] != reference.tokens[others]) & (shorter > 0)
    if not differ.any():
        return logs
    rows, others, shorter = rows[differ], others[differ], shorter[differ]
    ours, theirs = _cut_tpot(this, rows, shorter), _cut_tpot(reference, others, shorter)
    found = logs.copy()
    found[rows] = np.log(theirs / ours)
    return found


def _cut_tpot(requests: RequestArrays, rows: Ints, tokens: Ints) -> Floats:
    """`tpot_s` in nanoseconds of the answers in `rows` up to the end of the commit that reaches so
    many tokens, at least 1; NaN where that is the first one, or takes no time."""
    total = np.cumsum(requests.commit_tokens)
    first = requests.commit_start[rows]
    before = total[first] - requests.commit_tokens[first]
    last = np.searchsorted(total, before + tokens)
    time = (requests.commit_ns[last] - requests.commit_ns[first]).astype(float)
    later = total[last] - total[first]
    usable = (later > 0) & (time > 0)
    values = np.full(len(rows), np.nan)
    values[usable] = time[usable] / later[usable]
    return values


def geometric_mean(logs: Floats) -> float | None:
    """exp of the mean of the defined entries; None when there are none."""
    defined = logs[~np.isnan(logs)]
    return math.exp(float(defined.mean())) if len(defined) else None


def speedup_interval(
    logs: Floats,
    rows: Ints | None = None,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval | None:
    """Geometric mean over all pairs of `logs` ((repeats, requests), NaN where missing) with its
    percentile bootstrap interval. None without a pair; no bounds with fewer than two requests.

    `rows`: (requests,) the number of the data row that each request asks; None where each asks its
    own. Requests of one row are drawn together: asking it again is no new evidence on other rows.
    Deterministic: the draws depend on the shape of the data and on `seed` only.
    """
    logs = logs[~np.isnan(logs).all(axis=1)]
    kept = ~np.isnan(logs).all(axis=0)
    logs = logs[:, kept]
    value = geometric_mean(logs.ravel())
    if value is None:
        return None
    sums, counts = np.nan_to_num(logs), (~np.isnan(logs)).astype(float)
    if rows is not None:
        sums, counts = _by_row(sums, rows[kept]), _by_row(counts, rows[kept])
    repeats, units = sums.shape
    if units < 2:
        return Interval(value, None, None)
    draws = (
        _draws(repeats, max(1, repeats - 1), resamples, seed + 1),
        _draws(units, units, resamples, seed),
    )
    total = _drawn_sums(sums, *draws)
    if (counts == 1).all():
        count = draws[0].sum(axis=0, dtype=float) * units
    else:
        count = _drawn_sums(counts, *draws)
    means = total[count > 0] / count[count > 0]
    tail = (1 - level) / 2
    low, high = np.exp(np.quantile(means, [tail, 1 - tail]))
    return Interval(value, float(low), float(high))


def _by_row(values: Floats, rows: Ints) -> Floats:
    """(repeats, distinct rows) sums over the requests of each row."""
    _, place = np.unique(rows, return_inverse=True)
    return np.array([np.bincount(place, weights=of_repeat) for of_repeat in values])


def _drawn_sums(values: Floats, repeats: Draws, units: Draws) -> Floats:
    """(resamples,) sum over each replicate's drawn repeats and units (columns) of `values`.

    einsum instead of a matrix product: BLAS would start threads, which costs more than the sum on
    a busy machine and makes the last digits depend on how many there are. With the replicates
    innermost it adds whole vectors, in the order of the units.
    """
    sums = np.einsum("nb,nr->rb", units, np.ascontiguousarray(values.T, np.float32))
    return np.asarray((sums * repeats).sum(axis=0, dtype=float))


@functools.lru_cache(maxsize=8)
def _draws(count: int, size: int, resamples: int, seed: int) -> Draws:
    """(count, resamples) how often each of `count` items is among `size` drawn with replacement."""
    generator = np.random.default_rng([seed, count, size])
    draws = np.empty((resamples, count), np.float32)
    for row, picks in zip(draws, generator.integers(0, count, (resamples, size)), strict=True):
        row[:] = np.bincount(picks, minlength=count)
    return np.ascontiguousarray(draws.T)


def _tpot_rows(requests: RequestArrays) -> Floats:
    values = np.full(len(requests), np.nan)
    values[requests.sampled] = tpot_s(requests)
    return values
