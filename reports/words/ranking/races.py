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

_MOST = 4
"""Variants that a sentence names."""


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
        and have no score, or one that the reference has next to nothing of."""
        if quality is None:
            return None
        vain = {t.workload for t in quality.tasks if t.judgement == "nothing to lose"}
        scored = {task.workload for task in quality.tasks} - vain
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


def why_none(race: Race, cells: Sequence[Cell], it: str = "it") -> str:
    """Why a race has no speed-up, as the end of a sentence; `it`: what the speed-ups are over."""
    rivals = {variant.index for variant in race.rivals}
    ran = [cell for cell in cells if cell.is_measured]
    own = [cell for cell in ran if cell.variant.index in rivals]
    if not own:
        tried = any(cell.variant.index in rivals for cell in cells)
        return "every other trial failed" if tried else "nothing else was run there"
    others = race.others(own, ran)
    if not others:
        native = race.speedup != "speedup"
        asked = [c.variant for c in cells]
        tried = any(v.backend == NATIVE if native else v.is_reference for v in asked)
        return f"every trial of {it} failed" if tried else f"{it} was not run there"
    return _apart(own, others) or "no two answers have times between tokens that can be compared"


def _apart(own: Sequence[Cell], others: Sequence[Cell]) -> str:
    """What the cells of two sides do not share; empty where some are of one place."""
    if {cell.place for cell in own} & {cell.place for cell in others}:
        return ""
    for at, what in enumerate(("workload", "load")):
        if not {cell.place[at] for cell in own} & {cell.place[at] for cell in others}:
            ran: dict[str, dict[str, None]] = {}
            for cell in (*others, *own):
                ran.setdefault(cell.variant.label, {})[cell.place[at]] = None
            told = [f"{label}: {' and '.join(places)}" for label, places in ran.items()]
            more = f"; and {len(told) - _MOST} more" * (len(told) > _MOST)
            both = "both" if len(told) == 2 else "it and another"
            return f"no {what} was run by {both} ({'; '.join(told[:_MOST])}{more})"
    if not {cell.place[:2] for cell in own} & {cell.place[:2] for cell in others}:
        return "no workload was run by both under one load"
    return "nothing was run by both on one machine with the same settings"
