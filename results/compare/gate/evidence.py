"""By how much a quantity of a cell is worse, with what is known of the error of that.

Everything is turned so that a positive number is worse. Ratios are compared as logs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from results.compare.gate.identity import DURATION
from results.compare.gate.quantities import GateQuantity
from results.compare.gate.reduced import NO_ANSWER, UNKNOWN_ANSWER, ReducedTrial
from results.compare.intervals.crossed import CrossedMean, crossed_mean
from results.compare.intervals.exchanged import p_exchanged
from results.compare.pairing import data_rows
from results.metrics.arrays import Floats, Ints

LONGER, SURE = 0.01, 0.99
"""By so much answers may be longer or shorter in all, before what is measured of whole answers
compares unequal work; and with how much confidence it has to be more: lengths differ from repeat to
repeat where answers do."""
_FROM_NOTHING = 1e6
"""The ratio of anything to 0. Ratios of 0 to 0 are 1."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What two runs say of one quantity of one cell."""

    worse: CrossedMean | None
    """None where no request or repeat has a value in both."""
    base: float | None
    """BASE's value: a geometric mean of a ratio's, else the mean."""
    new: float | None


def paired_trials(
    base: Sequence[ReducedTrial], new: Sequence[ReducedTrial]
) -> list[tuple[ReducedTrial, ReducedTrial]]:
    """Trials of equal number; in their order where fewer than two numbers are in both."""
    theirs = {trial.repeat: trial for trial in new}
    found = [(trial, theirs[trial.repeat]) for trial in base if trial.repeat in theirs]
    least = min(len(base), len(new))
    return found if len(found) >= min(2, least) else list(zip(base, new, strict=False))


def evidence(
    found: GateQuantity,
    better: str,
    base: Sequence[ReducedTrial],
    new: Sequence[ReducedTrial],
    *,
    paired: bool,
) -> Evidence:
    """Of a quantity of any form but "answers". `paired`: repeats of both runs are set side by side;
    else only what all repeats of each come to (Welch 1947, Biometrika 34:28), as with what several
    repeats share."""
    paired = paired and not found.is_of_a_load
    if paired:
        pairs = paired_trials(base, new)
        base, new = [one for one, _ in pairs], [other for _, other in pairs]
    ids = base[0].ids if base else []
    sides = [_matrix(found, trials, ids) for trials in (base, new)]
    rows = None if found.is_of_a_trial else data_rows(ids)
    sign = 1.0 if better == "smaller" else -1.0
    if paired:
        worse = _mean(sign * _difference(found, *sides), rows, found)
    else:
        worse = _welch(*(_mean(sign * _alone(found, side), rows, found) for side in sides))
    return Evidence(worse, *(_told(found, side) for side in sides))


def answers(base: Sequence[ReducedTrial], new: Sequence[ReducedTrial]) -> Evidence:
    """Of `consistency`: how much more often a new answer differs from BASE's of the same repeat
    than BASE's other repeats' do, over requests that both answered: those that fail are judged by
    their number. The values are shares of equal answers."""
    pairs = paired_trials(base, new)
    ids = base[0].ids if base else []
    digests = {id(trial): _digests(trial, ids) for trial in base}
    differ = [_of_answered(digests[id(one)], _digests(other, ids)) for one, other in pairs]
    floor = [_own(one, base, digests) for one, _ in pairs]
    if not differ:
        return Evidence(None, None, None)
    with np.errstate(invalid="ignore"):
        worse = np.array(differ) - np.array(floor)
    equal = [1 - share for share in (_nan_mean(np.array(m)) for m in (floor, differ))]
    return Evidence(crossed_mean(worse, data_rows(ids)), equal[0], equal[1])


class ChangedAnswer(NamedTuple):
    """An answer of NEW that is not BASE's."""

    repeat: int
    request: str
    failed: bool
    """Whether it is none at all."""


def answer_pairs(
    base: Sequence[ReducedTrial], new: Sequence[ReducedTrial], *, further: bool
) -> list[tuple[ReducedTrial, ReducedTrial]]:
    """`paired_trials`; `further`: every one of NEW beside what BASE's repeats agree in."""
    if not further:
        return paired_trials(base, new)
    ids = list(dict.fromkeys(name for trial in base for name in trial.ids))
    # an answer is more than what stands for none
    agreed = np.array([_digests(trial, ids) for trial in base]).max(axis=0)
    every = replace(base[0], ids=ids, answers=agreed)
    return [(every, other) for other in new]


def changed_answers(pairs: Iterable[tuple[ReducedTrial, ReducedTrial]]) -> Iterator[ChangedAnswer]:
    """Each answer of the second trials that is not the first's."""
    for one, other in pairs:
        answered = _digests(other, one.ids)
        for place in np.flatnonzero(_differ(_digests(one, one.ids), answered) == 1).tolist():
            failed = bool(answered[place] == NO_ANSWER)
            yield ChangedAnswer(other.repeat, one.ids[place], failed)


def unequal_work(base: Sequence[ReducedTrial], new: Sequence[ReducedTrial]) -> float:
    """The log of how many tokens NEW's answers have over BASE's, over requests that both answered,
    where it is shown to be beyond `LONGER`; else 0, also where lengths are not told."""
    found = []
    for one, other in paired_trials(base, new):
        if one.lengths is None or other.lengths is None:
            continue
        theirs = _in_order(other, other.lengths.astype(float), one.ids, math.nan)
        answered = (one.answers != NO_ANSWER) & (_digests(other, one.ids) != NO_ANSWER)
        answered &= ~np.isnan(theirs)
        before, after = one.lengths[answered].sum(), theirs[answered].sum()
        if before and after:
            found.append(math.log(after / before))
    mean = repeat_mean(np.array(found))
    if mean is None:
        return 0.0
    low, high = mean.bounds(SURE) or (mean.mean, mean.mean)
    is_shown = low > math.log1p(LONGER) or high < math.log1p(-LONGER)
    return mean.mean if is_shown else 0.0


def p_same_answers(base: Sequence[ReducedTrial], new: Sequence[ReducedTrial]) -> float | None:
    """The chance that answers of one kind differ between the runs as much as these do, of requests
    that every repeat of BASE answered; None where no such request's were told in every repeat."""
    ids = base[0].ids
    found = np.array([_digests(trial, ids) for trial in (*base, *new)])
    known = (found[: len(base)] > NO_ANSWER).all(axis=0) & (found != UNKNOWN_ANSWER).all(axis=0)
    if not known.any():
        return None
    rows = data_rows(ids)
    return p_exchanged(found[:, known], len(base), None if rows is None else rows[known])


def repeats_agree(base: Sequence[ReducedTrial]) -> bool:
    """Whether all repeats that answered a request answered it alike. One that failed is no answer,
    so that it does not let a lossless backend off its promise."""
    ids = list(dict.fromkeys(name for trial in base for name in trial.ids))
    found = np.array([_digests(trial, ids) for trial in base])
    answered = found > NO_ANSWER
    least = np.where(answered, found, np.iinfo(np.int64).max).min(axis=0)
    return not (answered & (found != least)).any()


def repeat_mean(values: Floats) -> CrossedMean | None:
    """The mean of one value a repeat, with the variance between repeats; NaN are left out."""
    values = values[~np.isnan(values)]
    count = len(values)
    if not count:
        return None
    if count < 2:
        return CrossedMean(float(values[0]), math.nan, math.nan, 1, 1, math.nan)
    variance = float(values.var(ddof=1)) / count
    return CrossedMean(float(values.mean()), variance, count - 1.0, count, 1, 0.0)


def _matrix(found: GateQuantity, trials: Sequence[ReducedTrial], ids: Sequence[str]) -> Floats:
    """(repeats, requests) values, or (repeats, 1) of a trial's; NaN where undefined."""
    if found.is_of_a_trial:
        numbers = [t.numbers.get(found.name, math.nan) for t in trials]
        if found.is_of_a_load:
            numbers = list(dict.fromkeys(numbers))
        return np.array(numbers).reshape(-1, 1)
    matrix = np.full((len(trials), len(ids)), np.nan)
    for row, trial in enumerate(trials):
        values = trial.values.get(found.name)
        if values is not None:
            matrix[row] = _in_order(trial, values, ids, math.nan)
    return matrix


def _in_order(trial: ReducedTrial, values: Floats, ids: Sequence[str], missing: float) -> Floats:
    if list(trial.ids) == list(ids):
        return values
    place = {name: n for n, name in enumerate(trial.ids)}
    found = [values[place[name]] if name in place else missing for name in ids]
    return np.array(found, values.dtype)


def _scaled(found: GateQuantity, values: Floats) -> Floats:
    if not found.is_ratio:
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values > 0, np.log(values), np.nan)


def _alone(found: GateQuantity, values: Floats) -> Floats:
    """`_scaled` of one side by itself, in which 0 is not undefined but next to nothing."""
    if not found.is_ratio:
        return values
    return np.where(values == 0, -math.log(_FROM_NOTHING), _scaled(found, values))


def _difference(found: GateQuantity, base: Floats, new: Floats) -> Floats:
    difference: Floats = _scaled(found, new) - _scaled(found, base)
    if found.is_ratio:
        difference[(base == 0) & (new == 0)] = 0.0
        difference[(base == 0) & (new > 0)] = math.log(_FROM_NOTHING)
        difference[(base > 0) & (new == 0)] = -math.log(_FROM_NOTHING)
    return difference


def _mean(values: Floats, rows: Ints | None, found: GateQuantity) -> CrossedMean | None:
    """Over requests and repeats; over repeats alone where there is one number of each. What the
    machine has no part in is exact where all repeats agree, be it one."""
    if values.size and not found.is_of_a_trial and (~np.isnan(values).all(axis=0)).sum() > 1:
        return crossed_mean(values, rows)
    mean = repeat_mean(values.ravel())
    if mean is not None and mean.repeats == 1 and not found.by_the_clock:
        return CrossedMean(mean.mean, 0.0, 1.0, 1, 1, 0.0)
    return mean


def _welch(base: CrossedMean | None, new: CrossedMean | None) -> CrossedMean | None:
    if base is None or new is None:
        return None
    parts = base.variance, new.variance
    variance = sum(parts)
    terms = parts[0] ** 2 / base.df + parts[1] ** 2 / new.df
    df = variance**2 / terms if terms > 0 else 1.0
    repeats, units = min(base.repeats, new.repeats), min(base.units, new.units)
    lasting = base.of_units + new.of_units
    return CrossedMean(new.mean - base.mean, variance, df, repeats, units, lasting)


def _told(found: GateQuantity, values: Floats) -> float | None:
    scaled = _scaled(found, values)
    if np.isnan(scaled).all():
        return 0.0 if (values == 0).any() else None
    mean = float(np.nanmean(scaled))
    return math.exp(mean) if found.is_ratio else mean


def _digests(trial: ReducedTrial, ids: Sequence[str]) -> Ints:
    """Of these requests. In a load of a `duration_s` how many are asked depends on speed, and what
    was not asked was not answered otherwise; in any other it has no answer."""
    if list(trial.ids) == list(ids):
        return trial.answers
    place = {name: n for n, name in enumerate(trial.ids)}
    unasked = UNKNOWN_ANSWER if trial.identity.get(DURATION) else NO_ANSWER
    found = [int(trial.answers[place[i]]) if i in place else unasked for i in ids]
    return np.array(found, np.int64)


def _differ(base: Ints, new: Ints) -> Floats:
    """(R,) 1 where an answer is another one, 0 where it is the same, NaN where BASE has none or
    either was not told."""
    unknown = (base == UNKNOWN_ANSWER) | (base == NO_ANSWER) | (new == UNKNOWN_ANSWER)
    return np.where(unknown, np.nan, (base != new).astype(float))


def _of_answered(base: Ints, new: Ints) -> Floats:
    """`_differ`, NaN where `new` has no answer either."""
    return np.where(new == NO_ANSWER, np.nan, _differ(base, new))


def _own(one: ReducedTrial, base: Sequence[ReducedTrial], digests: dict[int, Ints]) -> Floats:
    """(R,) share of BASE's other repeats, of those with an answer, whose answer is not this one's;
    NaN where none has one, and 0 without others."""
    others = [_of_answered(digests[id(one)], digests[id(t)]) for t in base if t is not one]
    if not others:
        return np.zeros(len(digests[id(one)]))
    found = np.array(others)
    told = (~np.isnan(found)).sum(axis=0)
    with np.errstate(invalid="ignore"):
        shares: Floats = np.nansum(found, axis=0) / told
    return shares


def _nan_mean(values: Floats) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else math.nan
