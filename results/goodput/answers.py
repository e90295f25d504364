"""What the answers are worth at the rate that was found: a system that answers worse when it is
pressed has not sustained the rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from harness.core.nouns import Slo
from results import registry
from results.compare.judged import MeanScores, add_scores, score_interval
from results.compare.quality import is_right
from results.goodput.search import FoundRate
from results.metrics import latency
from results.metrics.arrays import RequestArrays

ABOUT = 1.25
"""Probes within this factor of the rate that was found tell what its answers are worth."""


class ProbedAnswers(NamedTuple):
    """The answers of the probes about the found rate."""

    score: str
    """Name of the task score."""
    mean: float
    low: float
    high: float
    """Its 95% interval over different prompts (`score_interval`)."""
    scored: int
    """Answers. `mean` is over their prompts, of which each counts the same."""
    right_per_s: float | None
    """Requests per second that meet the objective *and* are right, at the rate found; None where
    nothing says what is right."""
    prompts: int
    """Different ones."""

    def words(self) -> str:
        """For people."""
        return f"{self.score} {self.mean:.3g} [{self.low:.3g}, {self.high:.3g}]"


def answers_about(
    probes: Sequence[tuple[float, RequestArrays]], slo: Slo, found: FoundRate | None
) -> ProbedAnswers | None:
    """The answers at about the rate that was found, by the task score that most prompts have, of
    several the first. None without a rate, or without a score.

    Args:
        probes: the rate that was asked for, and the requests.
        slo: the objective.
        found: the rate.
    """
    if found is None:
        return None
    apart = [abs(math.log(rate / found.rate)) for rate, _ in probes]
    most = max(math.log(ABOUT), min(apart, default=0.0))
    near = [own for far, (_, own) in zip(apart, probes, strict=True) if far <= most]
    scores: MeanScores = {}
    for own in near:
        add_scores(scores, own)
    names = [metric.name for metric in registry.scores() if scores.get(metric.name)]
    if not names:
        return None
    name = max(names, key=lambda each: len(scores[each]))
    means, share = scores[name], _good_and_right(near, slo)
    rate = None if share is None else found.rate * share
    scored = sum(mean.count for mean in means.values())
    return ProbedAnswers(name, *score_interval(means), scored, rate, len(means))


def is_right_enough(answers: ProbedAnswers | None, least: float | None) -> bool:
    """False where the answers are shown to score less than they have to."""
    return least is None or answers is None or answers.high >= least


def _good_and_right(probes: Sequence[RequestArrays], slo: Slo) -> float | None:
    """Share of all requests."""
    counted = total = 0
    for own in probes:
        right = is_right(own, None)
        if right is None:
            return None
        counted += int((right & latency.meets_slo(own, slo)).sum())
        total += len(own)
    return counted / total if total else None
