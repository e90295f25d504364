"""Who may be ranked with whom, and on which cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from reports.cells import Cell
from reports.variants import Variant
from reports.words.doubts.overhead import shrinking
from reports.words.drafts import arithmetic, engine
from reports.words.quality import AnswerQuality
from reports.words.ranking.same import TO_REFERENCE, answer_words, consistency, keeps_answers
from results.compare.pairing import NATIVE


class Race(NamedTuple):
    """Who is compared with whom."""

    name: str
    """What the speed-ups are over."""
    rivals: Sequence[Variant]
    speedup: str = "speedup"
    same: str = TO_REFERENCE

    def others(self, own: Sequence[Cell], cells: Sequence[Cell]) -> list[Cell]:
        """Those of `cells` that the speed-ups of a variant, of which `own` are, are over."""
        if self.speedup == "speedup":
            return [cell for cell in cells if cell.variant.is_reference]
        plain = [cell for cell in cells if cell.variant.backend == NATIVE and cell.is_measured]
        alike = [cell for cell in plain if arithmetic(cell) == arithmetic(own[0])] or plain
        return [cell for cell in alike if cell.variant == alike[0].variant]

    def answers(self, cells: Sequence[Cell]) -> str:
        """Whether the answers are the other's, as a noun phrase; empty when unknown."""
        other = "the reference" if self.same == TO_REFERENCE else self.name
        return answer_words(cells, self.same, other)

    def keeps(self, cells: Sequence[Cell]) -> bool:
        """Whether the answers are the other's, up to what it differs from itself."""
        return keeps_answers(cells, self.same)

    def judged(self, cells: Sequence[Cell], quality: AnswerQuality | None) -> AnswerQuality | None:
        """`quality` of a variant with the workloads of its `cells` on which its answers are others
        and have no score."""
        if quality is None:
            return None
        scored = {task.workload for task in quality.tasks}
        by_task: dict[str, list[Cell]] = {}
        for cell in cells:
            if cell.is_measured and cell.task not in scored:
                by_task.setdefault(cell.task, []).append(cell)
        unscored = [name for name, own in by_task.items() if not self._equal(own)]
        return replace(quality, unscored=unscored)

    def _equal(self, cells: Sequence[Cell]) -> bool:
        """A verdict on texts is over all workloads, and says nothing of one alone."""
        found = consistency(cells, self.same)
        return found is not None and found[0] == 1

    def has_good_answers(self, cells: Sequence[Cell], quality: AnswerQuality | None) -> bool:
        """Whether they are the other's, or as good by their scores; no replay's are judged, so that
        they are what its method promises."""
        if cells[0].variant.is_replay:
            return not cells[0].variant.lossy
        found = self.judged(cells, quality)
        return self.keeps(cells) or (found is not None and found.is_good)


def races(cells: Sequence[Cell], variants: Sequence[Variant]) -> list[Race]:
    """The ranking of all that have a reference, or one for each engine where ratios between engines
    would shrink with the size of the model. `variants`: one is the reference."""
    rivals = [v for v in variants if not v.is_reference]
    reference = next(v for v in variants if v.is_reference)
    engines = {c.variant.index: engine(c) for c in cells if c.is_measured}
    own = engines.get(reference.index)
    if not any(engines.get(c.variant.index) == NATIVE != own for c in shrinking(cells)):
        return [Race(reference.label, rivals)]
    ours = {index for index, name in engines.items() if name == NATIVE}
    theirs = [v for v in rivals if v.index not in ours]
    faster = [v for v in rivals if v.index in ours and v.backend != NATIVE]
    found = [Race(reference.label, theirs)] * bool(theirs)
    return found + [Race(NATIVE, faster, "speedup_native", "consistency_native")] * bool(faster)


def sound_scopes(cells: Sequence[Cell], metric: str) -> set[tuple[str, str, str]]:
    """Places in which a variant's speed-up is valid."""
    return {c.place for c in cells if c.value(metric) and c.holds(metric)}


def common_scopes(groups: Mapping[int, Sequence[Cell]], metric: str) -> set[tuple[str, str, str]]:
    """Those in which every variant's is that has any; `groups`: cells by variant."""
    found = [scopes for cells in groups.values() if (scopes := sound_scopes(cells, metric))]
    return set.intersection(*found) if found else set()
