"""Are a variant's answers as good as the reference's? Paired scores of the same requests.

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
from types import MappingProxyType
from typing import Literal

from harness.core.nouns import QUALITY_MARGIN
from reports.cells import Cell
from reports.collect import Mean, Samples
from reports.numbers import counted, significant
from reports.tables import QUALITY
from reports.variants import Variant

_Z = 1.645
_PSEUDO = 2.0
"""Pairs added in all."""
Judgement = Literal["as good", "worse", "too few"]


@dataclass(frozen=True, slots=True)
class TaskQuality:
    """One task's score, the reference's and a variant's, over the prompts that both answered."""

    workload: str
    score: str
    """Its label."""
    reference: float
    own: float
    prompts: int
    judgement: Judgement
    needed: int
    """Prompts that would settle it if they went on like these; 0 where it is settled."""

    @property
    def change(self) -> str:
        """``gsm8k exact match 0.790 -> 0.210``."""
        numbers = f"{significant(self.reference)} → {significant(self.own)}"
        return f"{self.workload} {self.score} {numbers}"


@dataclass(frozen=True, slots=True)
class AnswerQuality:
    """All tasks of a variant that have scores; at least one."""

    tasks: Sequence[TaskQuality]
    margin: float = QUALITY_MARGIN
    """Absolute, of a task's score."""

    @property
    def judgement(self) -> Judgement:
        """Worse where one task is; as good where all are."""
        found = {task.judgement for task in self.tasks}
        return "worse" if "worse" in found else "too few" if "too few" in found else "as good"

    @property
    def words(self) -> str:
        """What it comes to, to follow the name of the variant's answers."""
        here = [task for task in self.tasks if task.judgement == self.judgement]
        changes = ", ".join(task.change for task in here)
        if self.judgement == "as good":
            return f"as good as the reference's within {self.margin:g} of the score"
        if self.judgement == "worse":
            return f"worse than the reference's: {changes}"
        needed = max(task.needed for task in here)
        least = min(task.prompts for task in here)
        return (
            f"not to be judged on {counted(least, 'prompt')} (about {needed:,} would settle it): "
            f"{changes}"
        )

    @property
    def short(self) -> str:
        """`words`, of several tasks that are worse with the worst one alone."""
        worse = [task for task in self.tasks if task.judgement == "worse"]
        if len(worse) < 2:
            return self.words
        most = min(worse, key=lambda task: task.own - task.reference)
        tasks = counted(len(self.tasks), "task")
        return f"worse than the reference's on {len(worse)} of {tasks}, most of all {most.change}"


NO_SCORES: Mapping[int, AnswerQuality] = MappingProxyType({})
"""Of a run without task scores."""


def qualities(
    cells: Sequence[Cell],
    variants: Sequence[Variant],
    samples: Samples,
    margin: float = QUALITY_MARGIN,
) -> dict[int, AnswerQuality]:
    """By variant, of those that have scores beside the reference's on these cells' workloads.
    `margin`: of a task's score, by which answers may be worse and still be as good."""
    reference = next((v for v in variants if v.is_reference and not v.is_replay), None)
    if reference is None:
        return {}
    workloads = {cell.workload: cell.task for cell in cells}
    found = {
        v.index: list(_tasks(v.index, reference.index, workloads, samples, margin))
        for v in variants
        if v is not reference and not v.is_replay
    }
    return {index: AnswerQuality(tasks, margin) for index, tasks in found.items() if tasks}


def _tasks(
    index: int, reference: int, workloads: Mapping[str, str], samples: Samples, margin: float
) -> Iterator[TaskQuality]:
    for workload, told in workloads.items():
        for name, label in QUALITY.items():
            theirs = samples.scores.get((reference, workload, name))
            ours = samples.scores.get((index, workload, name))
            if theirs and ours and (task := _task(told, label, theirs, ours, margin)):
                yield task
                break


def _task(
    workload: str,
    label: str,
    theirs: Mapping[str, Mean],
    ours: Mapping[str, Mean],
    margin: float,
) -> TaskQuality | None:
    pairs = [(_value(theirs[name]), _value(mean)) for name, mean in ours.items() if name in theirs]
    if not pairs:
        return None
    count, sums = len(pairs), [sum(side) / len(pairs) for side in zip(*pairs, strict=True)]
    judgement, needed = judge([own - reference for reference, own in pairs], margin)
    return TaskQuality(workload, label, sums[0], sums[1], count, judgement, needed)


def _value(mean: Mean) -> float:
    return mean.total / mean.count


def judge(differences: Sequence[float], margin: float = QUALITY_MARGIN) -> tuple[Judgement, int]:
    """Of paired differences (own score - the reference's, each from -1 to 1; at least one), and the
    prompts that would settle it if they went on like these, 0 where it is settled."""
    count = len(differences) + _PSEUDO
    mean = sum(differences) / count
    square = (sum(d * d for d in differences) + _PSEUDO / 2) / count
    reach = _Z * math.sqrt(max(square - mean * mean, 0.0) / count)
    if mean - reach > -margin:
        return "as good", 0
    if mean + reach < -margin:
        return "worse", 0
    far = abs(mean + margin) or max(margin, 1e-3) / 10
    return "too few", math.ceil(count * (reach / far) ** 2)
