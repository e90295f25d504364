"""Are answers as good as the reference's? Paired scores of the same prompts.

Not worse means: not by more than a margin of a task's score, at one-sided 95%. The bound is Agresti
and Min's for paired proportions (2005, Biometrics 61:515), a pseudo-count of one half in each of
the four cells of right and wrong, with the mean square of the differences in the place of the
discordant pairs' share, so that it serves scores between right and wrong too. It stays wide where
few prompts were asked and none of them differed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from harness.core.names import row_id
from harness.core.nouns import QUALITY_MARGIN, Trial, TrialRecord
from results.compare.intervals.wilson import wilson_interval
from results.compare.machines import ANSWERED, settings, workload_asked
from results.metrics.arrays import RequestArrays

if TYPE_CHECKING:
    from results.run import Run

_Z = 1.645
_PSEUDO = 2.0
"""Pairs added in all."""
Judgement = Literal["as good", "worse", "too few"]


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
    """Prompts that would settle it if they went on like these; 0 where it is settled."""


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
    judgement, needed = judge([own - reference for reference, own in pairs], margin)
    return PairedScores(sums[0], sums[1], count, judgement, needed)


def judge(differences: Sequence[float], margin: float = QUALITY_MARGIN) -> tuple[Judgement, int]:
    """Of paired differences (own score - the reference's, each from -1 to 1; at least one), and the
    prompts that would settle it if they went on like these, 0 where it is settled."""
    asked, total, square = len(differences), sum(differences), sum(d * d for d in differences)
    found = _judgement(asked, total, square, margin)
    if found != "too few":
        return found, 0
    if math.isclose(total / asked, -margin):
        # no number settles what lies on the margin: told is what a tenth beyond it takes
        total -= asked * max(margin, 1e-3) / 10

    def settles(prompts: int) -> bool:
        times = prompts / asked
        return _judgement(prompts, total * times, square * times, margin) != "too few"

    low, high = asked, 2 * asked
    while not settles(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if settles(middle) else (middle, high)
    return found, high


def _judgement(prompts: int, total: float, square: float, margin: float) -> Judgement:
    """Of the sums of so many differences and of their squares."""
    count = prompts + _PSEUDO
    mean = total / count
    variance = max((square + _PSEUDO / 2) / count - mean * mean, 0.0)
    reach = _Z * math.sqrt(variance / count)
    if mean - reach > -margin:
        return "as good"
    return "worse" if mean + reach < -margin else "too few"


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
