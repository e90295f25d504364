"""What early exit loses: answer by answer, against what the full model answered."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from backends.early_exit.calibration.group import AnsweredGroup
from backends.early_exit.calibration.learn_then_test import p_value, upper_bound
from backends.early_exit.calibration.prompts import CalibrationPrompt
from backends.early_exit.calibration.settings import Settings
from harness.core.errors import UserError
from harness.core.rouge import rouge_l
from workloads import scoring, workload_info

Groups = Sequence[AnsweredGroup]


class GroupLosses(NamedTuple):
    """Independent losses between 0 and 1, one a group, whose mean is to stay below the limit."""

    losses: list[float]
    binary: bool
    """Whether each is 0 or 1 by definition."""


class HeldQuality(NamedTuple):
    """What losses come to; of several workloads the worst counts."""

    quality: float
    """1 - mean loss."""
    at_least: float
    """Its lower bound, for this setting alone."""
    p_value: float
    """Of "somewhere the mean loss is above the limit": that is rejected where it is rejected for
    each, each at the full level (an intersection-union test; Berger 1982)."""


class AnswerLosses:
    """Compares answers to calibration prompts with the full model's.

    Args:
        settings: which loss, and over what its mean is taken.
        groups: the prompts, as they are decoded together.
        tokenizer: the model's.
    """

    def __init__(
        self, settings: Settings, groups: Sequence[Sequence[CalibrationPrompt]], tokenizer: Any
    ) -> None:
        self._settings, self._groups, self._tokenizer = settings, groups, tokenizer
        self._texts: dict[tuple[int, ...], str] = {}
        self._scores: dict[tuple[str, tuple[int, ...]], float] = {}

    def held(self, full: Groups, own: Groups) -> HeldQuality:
        """Both in the order of the groups."""
        limit, level = self._settings.limit, self._settings.level
        found = self._losses(full, own)
        return HeldQuality(
            1.0 - max(fmean(one.losses) for one in found),
            1.0 - max(upper_bound(one.losses, level, binary=one.binary) for one in found),
            max(p_value(one.losses, limit, binary=one.binary) for one in found),
        )

    def told(self, full: Groups, stops: Sequence[int]) -> dict[str, dict[str, float]]:
        """The full model's answers by workload, as `Calibration.workloads` has them."""
        if self._settings.metric == "score":
            self._score(full)
        found: dict[str, dict[str, float]] = {}
        for name, most in self._settings.answer_limits.items():
            own = [
                (prompt, ids)
                for prompts, group in zip(self._groups, full, strict=True)
                for prompt, ids in zip(prompts, group.answers, strict=True)
                if prompt.workload == name
            ]
            cut = [len(ids) >= prompt.limit and ids[-1] not in stops for prompt, ids in own]
            found[name] = {"max_new_tokens": most, "cut": fmean(cut)}
            if self._settings.metric == "score":
                found[name]["score"] = fmean(self._scores[prompt.row, ids] for prompt, ids in own)
        return found

    def _losses(self, full: Groups, own: Groups) -> list[GroupLosses]:
        """Of all prompts, or of each workload's."""
        settings = self._settings
        if settings.metric == "score":
            self._score(full)
            self._score(own)
        each = [
            [
                self._loss(*three)
                for three in zip(prompts, whole.answers, group.answers, strict=True)
            ]
            for prompts, whole, group in zip(self._groups, full, own, strict=True)
        ]
        if settings.per == "mixture":
            return [GroupLosses([fmean(losses) for losses in each], settings.binary)]
        found = []
        for name in settings.workloads:
            some = [
                [loss for prompt, loss in zip(*both, strict=True) if prompt.workload == name]
                for both in zip(self._groups, each, strict=True)
            ]
            means = [fmean(losses) for losses in some if losses]
            found.append(GroupLosses(means, settings.binary_for(name)))
        return found

    def _loss(
        self, prompt: CalibrationPrompt, expected: tuple[int, ...], own: tuple[int, ...]
    ) -> float:
        if expected == own:
            return 0.0
        if self._settings.metric == "consistency":
            return 1.0
        if self._settings.metric == "score":
            # what is gained on one prompt makes up for nothing that is lost on another
            before, after = self._scores[prompt.row, expected], self._scores[prompt.row, own]
            return min(1.0, max(0.0, before - after))
        return 1.0 - rouge_l(self._text(expected), self._text(own))

    def _score(self, answered: Groups) -> None:
        """Score what is new, a workload at a time: HumanEval's programs run side by side."""
        new: dict[str, dict[tuple[str, tuple[int, ...]], CalibrationPrompt]] = {}
        for prompts, group in zip(self._groups, answered, strict=True):
            for prompt, ids in zip(prompts, group.answers, strict=True):
                if (prompt.row, ids) not in self._scores:
                    new.setdefault(prompt.workload, {})[prompt.row, ids] = prompt
        for name, asked in new.items():
            texts = [self._text(ids) for _, ids in asked]
            metric = workload_info(name).metric
            why: dict[int, str] = {}
            rows = [prompt.data for prompt in asked.values()]
            thinks = [self._thinks(prompt) for prompt in asked.values()]
            scores = scoring.score_all(name, rows, texts, thinks=thinks, unscored=why)
            if why:
                (row, _), reason = [*asked][min(why)], why[min(why)]
                raise UserError(f"--risk: workload {name}, row {row} has no score: {reason}")
            for key, score in zip(asked, scores, strict=True):
                # a row of one's own names its scorer, which gives one score
                self._scores[key] = score[metric] if metric else next(iter(score.values()))

    def _thinks(self, prompt: CalibrationPrompt) -> bool:
        """Whether its answer begins as a thought, which a trial takes for no answer."""
        asked = self._tokenizer.decode(list(prompt.ids), skip_special_tokens=False)
        return scoring.thinks_from_the_start(str(asked))

    def _text(self, ids: tuple[int, ...]) -> str:
        if ids not in self._texts:
            self._texts[ids] = str(self._tokenizer.decode(list(ids), skip_special_tokens=True))
        return self._texts[ids]
