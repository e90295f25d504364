"""Are a variant's answers as good as the reference's (`results.compare.judged`), in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from harness.core.nouns import QUALITY_MARGIN
from reports.cells import Cell
from reports.collect import Samples
from reports.numbers import counted, significant
from reports.tables import QUALITY
from reports.variants import Variant
from results.compare.judged import Judgement, PairedScores, paired, would_settle

_ORDER: Sequence[Judgement] = ("worse", "too few", "as good", "nothing to lose")


@dataclass(frozen=True, slots=True)
class TaskQuality:
    """One task's score, the reference's and a variant's, over the prompts that both answered."""

    workload: str
    score: str
    """Its label."""
    pair: PairedScores
    apart: str = ""
    """Of which machine or settings (`Cell.apart`), where several are told of together."""

    @property
    def judgement(self) -> Judgement:
        """Of the pair."""
        return self.pair.judgement

    @property
    def change(self) -> str:
        """``gsm8k exact match 0.790 -> 0.210``."""
        numbers = f"{significant(self.pair.reference)} → {significant(self.pair.own)}"
        return f"{self.workload} {self.score} {numbers}{f' ({self.apart})' * bool(self.apart)}"


@dataclass(frozen=True, slots=True)
class AnswerQuality:
    """All tasks of a variant that have scores; at least one."""

    tasks: Sequence[TaskQuality]
    margin: float = QUALITY_MARGIN
    """Absolute, of a task's score."""
    unscored: Sequence[str] = ()
    """Workloads on which its answers are others and have no score."""

    @property
    def judgement(self) -> Judgement:
        """Worse where one task is; as good where all are on which there is something to lose."""
        found = {task.judgement for task in self.tasks}
        return next(one for one in _ORDER if one in found)

    @property
    def is_good(self) -> bool:
        """Whether they are as good wherever they are others: a score says nothing of other tasks'
        answers."""
        return self.judgement == "as good" and not self.unscored

    @property
    def words(self) -> str:
        """What it comes to, to follow the name of the answers, and where no score tells."""
        here = [task for task in self.tasks if task.judgement == self.judgement]
        changes = ", ".join(task.change for task in here)
        if self.judgement == "as good":
            where = ", ".join(dict.fromkeys(task.workload for task in here))
            on = f" on {where}" * bool(self.unscored)
            within = f"within {self.margin:g} of the score"
            return f"as good as the reference's {within}{on}{self._unjudged}"
        if self.judgement == "worse":
            return f"worse than the reference's: {changes}{self._unjudged}"
        if self.judgement == "nothing to lose":
            return f"not to be judged ({_nothing_to_lose(here)}): {changes}{self._unjudged}"
        least = min(task.pair.prompts for task in here)
        return (
            f"not to be judged on {counted(least, 'prompt')} "
            f"({would_settle([task.pair for task in here])}): {changes}{self._unjudged}"
        )

    @property
    def short(self) -> str:
        """`words`, of several tasks that are not as good with the most changed one alone."""
        here = [task for task in self.tasks if task.judgement == self.judgement]
        if self.judgement in ("as good", "nothing to lose") or len(here) < 2:
            return self.words
        most = min(here, key=lambda task: task.pair.own - task.pair.reference)
        on = f"{len(here)} of {counted(len(self.tasks), 'task')}, most of all {most.change}"
        if self.judgement == "worse":
            return f"worse than the reference's on {on}{self._unjudged}"
        return f"not to be judged on so few prompts: {on}{self._unjudged}"

    @property
    def _unjudged(self) -> str:
        lost = {t.workload: t for t in self.tasks if t.judgement == "nothing to lose"}
        told = [
            f"{name} ({_nothing_to_lose([lost[name]])})" if name in lost else name
            for name in self.unscored
            if name not in lost or self.judgement != "nothing to lose"
        ]
        return f", and judged by no score on {', '.join(told)}" * bool(told)


def _nothing_to_lose(tasks: Sequence[TaskQuality]) -> str:
    most = max(task.pair.reference for task in tasks)
    return f"the reference scores {most:.2f}: nothing to lose"


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
    places = {(cell.workload, cell.apart): cell.task for cell in cells}
    found = {
        v.index: list(_tasks(v.index, reference.index, places, samples, margin))
        for v in variants
        if v is not reference and not v.is_replay
    }
    return {index: AnswerQuality(tasks, margin) for index, tasks in found.items() if tasks}


def _tasks(
    index: int,
    reference: int,
    places: Mapping[tuple[str, str], str],
    samples: Samples,
    margin: float,
) -> Iterator[TaskQuality]:
    """`places`: workload and `Cell.apart` -> what the workload is called."""
    has_parts = len({apart for _, apart in places}) > 1
    for place, told in places.items():
        for name, label in QUALITY.items():
            theirs = samples.scores.get((reference, *place, name))
            ours = samples.scores.get((index, *place, name))
            if theirs and ours and (pair := paired(theirs, ours, margin)):
                yield TaskQuality(told, label, pair, place[1] if has_parts else "")
                break
