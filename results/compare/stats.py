"""Paired speed-up with a t interval over repeats and requests.

The data of one cell is a matrix of log ratios, one row per repeat and one column per request, NaN
where the pair is missing; `results.compare.intervals.crossed` has its mean and what that is worth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from results.compare.agreement import pair
from results.compare.intervals.crossed import crossed_mean
from results.metrics.arrays import Floats, Ints, RequestArrays
from results.metrics.latency import tpot_s

FEWEST_LENGTHS = 5
"""Prompts whose answers are of another length, with fewer of which an interval has no ends."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A geometric mean and its 95% interval; the bounds are None where one request is all, or too
    few differ."""

    value: float
    low: float | None
    high: float | None
    repeats: int | None = None
    """Repeats that it rests on. With one it is an interval over the requests only, and too narrow
    for what a machine does between repeats."""
    more_repeats: int | None = None
    """So many more would tell the ratio from 1 (see `repeats_to_exclude`); 0 where it is told."""


def log_ratios(this: RequestArrays, reference: RequestArrays) -> Floats:
    """(R,) log(reference's decode time per token / this trial's), request by request.

    Decode time is `tpot_s`: where both answers have equally many tokens after an equal first
    commit this is the plain ratio of decode times, and where lengths differ it compares time per
    token. NaN where either is undefined or zero, or where the reference lacks the request.
    """
    rows, reference_rows = pair(this, reference)
    ours, theirs = by_row(this, tpot_s)[rows], by_row(reference, tpot_s)[reference_rows]
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


def speedup_interval(logs: Floats, rows: Ints | None = None) -> Interval | None:
    """Geometric mean over all pairs of `logs` ((repeats, requests), NaN where missing) with its 95%
    interval. None without a pair; no bounds with fewer than two requests.

    `rows`: (requests,) the number of the data row that each request asks; None where each asks its
    own. Requests of one row count together: asking it again is no new evidence on other rows.
    """
    found = crossed_mean(logs, rows)
    if found is None:
        return None
    value, bounds = math.exp(found.mean), found.bounds()
    if bounds is None:
        return Interval(value, None, None, found.repeats)
    if bounds[0] > 0 or bounds[1] < 0:
        more: int | None = 0
    else:
        needed = found.repeats_to_exclude()
        more = None if needed is None else max(1, needed - found.repeats)
    return Interval(value, math.exp(bounds[0]), math.exp(bounds[1]), found.repeats, more)


def length_interval(logs: Floats, rows: Ints | None = None) -> Interval | None:
    """`speedup_interval` of lengths: without bounds where fewer than `FEWEST_LENGTHS` requests (or
    data rows) differ in one. Lengths repeat exactly, so that where none of a few rare ones is among
    the requests they would be [1, 1]."""
    found = speedup_interval(logs, rows)
    differing = np.flatnonzero((np.nan_to_num(logs) != 0).any(axis=0))
    count = len(differing if rows is None else np.unique(rows[differing]))
    if found is None or count >= FEWEST_LENGTHS:
        return found
    return replace(found, low=None, high=None)


def by_row(requests: RequestArrays, latency: Callable[[RequestArrays], Floats]) -> Floats:
    """(R,) a latency of each request, NaN where it is undefined."""
    values = np.full(len(requests), np.nan)
    values[requests.sampled] = latency(requests)
    return values


def by_request(
    ids: Sequence[Sequence[str]], values: Sequence[Floats]
) -> tuple[Sequence[str], Floats]:
    """Request ids, and (repeats, requests) of values by id, NaN where a repeat lacks one."""
    if all(names == ids[0] for names in ids):
        return ids[0], np.array(values)
    place = {name: i for i, name in enumerate(dict.fromkeys(n for row in ids for n in row))}
    matrix = np.full((len(ids), len(place)), np.nan)
    for row, names, found in zip(matrix, ids, values, strict=True):
        row[[place[name] for name in names]] = found
    return list(place), matrix
