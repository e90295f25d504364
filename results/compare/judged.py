"""Are answers as good as the reference's? Paired scores of the same prompts.

Not worse means: not by more than a margin of a task's score, at one-sided 95%. Two tests have to
show it. One is Tango's score test for paired proportions (1998, Statistics in Medicine 17:891),
with the sum of the squared differences in the place of the number of discordant pairs, so that it
serves scores between right and wrong too. The other is the exact binomial test of the net losses,
continued between whole numbers: where prompts are only lost and hardly any is, as by a lossy
method, no normal approximation keeps its level. Worse is shown by Agresti and Min's bound (2005,
Biometrics 61:515), a pseudo-count of one half in each of the four cells of right and wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from harness.core.names import row_id
from harness.core.nouns import QUALITY_MARGIN, Trial, TrialRecord
from results.compare.intervals.wilson import wilson_interval
from results.compare.machines import ANSWERED, settings, workload_asked
from results.metrics.arrays import RequestArrays

if TYPE_CHECKING:
    from results.run import Run

_Z, _LEVEL = 1.645, 0.05
_PSEUDO = 2.0
"""Pairs added in all."""
_POWER = 0.8416
"""What is advised settles it in 4 of 5 cases: a normal variable is above minus so many of its
standard deviations that often."""
_FEWEST = 5
"""Prompts that differ, from which on their share is known well enough to advise a number."""
_MOST = 10_000_000
Judgement = Literal["as good", "worse", "too few", "nothing to lose"]
"""The last one where the reference scores no more than the margin: wrong answers throughout would
be as good."""


@dataclass(slots=True)
class Mean:
    """Sum and count of the scores of all answers to one prompt."""

    total: float = 0.0
    count: int = 0

    @property
    def value(self) -> float:
        """Of one answer at least."""
        return self.total / self.count


MeanScores = dict[str, dict[str, Mean]]
"""Score -> the id under which a prompt was asked first (`row_id`) -> its mean."""


@dataclass(frozen=True, slots=True)
class PairedScores:
    """One task's score, the reference's and another's, over the prompts that both answered."""

    reference: float
    own: float
    prompts: int
    judgement: Judgement
    needed: int
    """See `Judged`."""
    is_least: bool = False


class Judged(NamedTuple):
    """What differences come to."""

    judgement: Judgement
    needed: int
    """Prompts in all that settle it in 4 of 5 cases where quality is equal; 0 where it is settled.
    """
    is_least: bool
    """Whether too few differ to tell that: then it is what would do if no further one differed."""


def would_settle(pairs: Sequence[PairedScores]) -> str:
    """How many prompts would settle pairs of which there are too few, as a clause."""
    needed = max(pair.needed for pair in pairs)
    if needed >= _MOST:
        return "no number that could be asked would settle it"
    if any(pair.is_least for pair in pairs):
        return f"at least {needed:,} are needed"
    return f"about {needed:,} would settle it"


@dataclass(frozen=True, slots=True)
class PooledQuality:
    """What all answers of one engine to a workload in one setting come to, beside the
    reference's."""

    trial: Trial
    """One of the engine's on that workload."""
    setting: Mapping[str, Any]
    """What tells it from others of the run (`settings`, and the seed, which draws prompts)."""
    score: str
    pair: PairedScores | None
    """None of the reference itself, and where no prompt was answered by both."""
    mean: float
    prompts: int
    is_lossless: bool
    """Whether plain decoding's answers are promised."""


def add_scores(found: MeanScores, requests: RequestArrays) -> None:
    """Add one trial's scores; answers without one are left out. A prompt that is asked again counts
    once, with the mean of its answers: they say nothing of other prompts."""
    known = set(requests.ids)
    prompts = [row_id(request_id, known) for request_id in requests.ids]
    for name, column in requests.scores.items():
        means = found.setdefault(name, {})
        for prompt, value in zip(prompts, column.tolist(), strict=True):
            if not math.isnan(value):
                mean = means.setdefault(prompt, Mean())
                mean.total += value
                mean.count += 1


def score_interval(means: Mapping[str, Mean]) -> tuple[float, float, float]:
    """Mean over prompts with its 95% interval; scores lie between 0 and 1.

    The interval is Wilson's (1927, J. Am. Stat. Assoc. 22:209) with the mean in the place of the
    proportion: exact in form for right-or-wrong scores, and wide enough for the others, whose
    variance is at most that of a right-or-wrong score of the same mean.
    """
    values = [mean.value for mean in means.values()]
    mean = sum(values) / len(values)
    return mean, *wilson_interval(mean, len(values))


def paired(
    theirs: Mapping[str, Mean], ours: Mapping[str, Mean], margin: float
) -> PairedScores | None:
    """Both means by prompt. `margin`: absolute, of the score. None without common prompts."""
    pairs = [(theirs[name].value, mean.value) for name, mean in ours.items() if name in theirs]
    if not pairs:
        return None
    count, sums = len(pairs), [sum(side) / len(pairs) for side in zip(*pairs, strict=True)]
    if sums[0] <= margin:
        return PairedScores(sums[0], sums[1], count, "nothing to lose", 0)
    found = judge([own - reference for reference, own in pairs], margin)
    return PairedScores(sums[0], sums[1], count, *found)


def judge(differences: Sequence[float], margin: float = QUALITY_MARGIN) -> Judged:
    """Of paired differences (own score - the reference's, each from -1 to 1; at least one)."""
    asked, total, square = len(differences), sum(differences), sum(d * d for d in differences)
    found = _judgement(asked, total, square, margin)
    if found != "too few":
        return Judged(found, 0, is_least=False)
    differ = sum(abs(d) > 1e-9 for d in differences)
    if differ < _FEWEST and not _is_as_good(asked, 0.0, 0.0, margin):
        needed = _first(asked, lambda count: _is_as_good(count, total, square, margin))
        return Judged(found, needed, is_least=True)
    # one pseudo-prompt differs as much as those that differ most: scores between right and wrong
    # differ by less than a whole one
    unit = max((d * d for d in differences), default=0.0) or 1.0
    share = (square + unit * _PSEUDO / 2) / (asked + _PSEUDO)

    def settles(prompts: int) -> bool:
        # further prompts make up for none of what is lost so far, and gain nothing on average
        low = min(total, 0.0) - _POWER * math.sqrt(share * prompts)
        return _is_as_good(prompts, low, share * prompts, margin)

    needed = _first(asked, settles)
    return Judged(found, needed, is_least=needed == _MOST)


def _first(low: int, settles: Callable[[int], bool]) -> int:
    """The first number above `low`, at most `_MOST`, from which on it is settled."""
    high = 2 * low
    while high < _MOST and not settles(high):
        low, high = high, 2 * high
    high = min(high, _MOST)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settles(middle) else (middle, high)
    return high


def _judgement(prompts: int, total: float, square: float, margin: float) -> Judgement:
    """Of the sums of so many differences and of their squares."""
    if _is_as_good(prompts, total, square, margin):
        return "as good"
    count = prompts + _PSEUDO
    mean = total / count
    variance = max((square + _PSEUDO / 2) / count - mean * mean, 0.0)
    return "worse" if mean + _Z * math.sqrt(variance / count) < -margin else "too few"


def _is_as_good(prompts: int, total: float, square: float, margin: float) -> bool:
    """Likewise. By Tango's test, in which the share of gains is its maximum likelihood estimate
    where losses outweigh gains by the margin, and by the binomial test."""
    slope = square - margin * (total + 2 * prompts)
    gains, spread = max(square + total, 0.0) / 2, margin * (1 - margin)
    share = (slope + math.sqrt(slope * slope + 8 * prompts * gains * spread)) / (4 * prompts)
    if total + margin * prompts <= _Z * math.sqrt(prompts * (2 * share + spread)):
        return False
    return _binomial_tail(-total, prompts, margin) <= _LEVEL


def _binomial_tail(losses: float, prompts: int, chance: float) -> float:
    """The chance of at most so many losses, continued between whole numbers; fewer than `prompts`.
    Nothing is left of it where gains outweigh losses by one or more."""
    from scipy.special import betainc

    if losses <= -1:
        return 0.0
    return float(betainc(prompts - losses, losses + 1, 1 - chance))


def pooled_quality(run: Run, scores: Sequence[str]) -> Iterator[PooledQuality]:
    """Of each engine that has one of the `scores`, by the first that it has, on each workload in
    each setting, in the run's order: all loads and repeats and what was asked for quality alone
    together. Replays, whose answers are chance, have none."""
    margin = run.experiment.get("quality_margin", QUALITY_MARGIN)
    own_settings = settings([stored.record for stored in run.stored], (*ANSWERED, "seed"))
    means, records = dict[tuple[Any, str], MeanScores](), dict[tuple[Any, str], TrialRecord]()
    references: dict[Any, str] = {}
    for member, group in run.members():
        trial, record = member.trial, member.stored.record
        if record.is_replay or member.requests is None or not member.answers_stand:
            continue
        asked = workload_asked(trial), *own_settings[record.key].items()
        add_scores(means.setdefault((asked, member.variant), {}), member.requests)
        records.setdefault((asked, member.variant), record)
        if member is group.reference.get(trial.repeat):
            references[asked] = member.variant
    for (asked, engine), own in means.items():
        name = next((name for name in scores if own.get(name)), None)
        if name is None:
            continue
        reference = references.get(asked, "")
        theirs = means.get((asked, reference), {}).get(name, {})
        pair = paired(theirs, own[name], margin) if engine != reference else None
        mean, *_ = score_interval(own[name])
        record = records[asked, engine]
        lossless = record.backend is not None and record.backend.lossless is True
        setting, prompts = own_settings[record.key], len(own[name])
        yield PooledQuality(record.trial, setting, name, pair, mean, prompts, lossless)
