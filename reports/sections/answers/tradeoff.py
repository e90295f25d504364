"""Whether speed is paid for with other answers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.figures import tradeoff
from reports.numbers import significant
from reports.panels import Panel, Place, group, measured, panels
from reports.sections import Section
from reports.tables import QUALITY
from reports.words.findings import sound
from reports.words.ranking import label_rates
from reports.words.speed import speed
from results.compare.judged import score_interval
from results.compare.pairing import NATIVE

_NOTE = (
    "One point per backend and load; the line is the 95% interval of the speed-up. Dashed: the "
    "speed of what is compared with, and how often the reference agrees with itself. Right and up "
    "is better. Task scores are of all answers to a workload's prompts. Dashed there: the Pareto "
    "front of what is valid; what lies left of it and below is beaten in both. Nothing in this "
    "section is pooled over cells."
)

_OTHER = tradeoff.REFERENCE.name
_ONE_IN = 40
"""Of so many intervals of equal systems one lies above 1."""
_OF_LABELS = " Of labels the line is the range of the repeats."


def section(seen: Overview, samples: Samples) -> Section:
    """A panel per workload against the reference, and against plain decoding."""
    groups = group(against(seen, tradeoff.REFERENCE))
    baselines = [tradeoff.REFERENCE]
    if not any(c.variant.is_reference and c.variant.backend == NATIVE for c in seen.cells):
        groups += group(against(seen, tradeoff.PLAIN), f"Against {NATIVE}")
        baselines.append(tradeoff.PLAIN)
    if labels := against(seen, tradeoff.LABELS):
        groups += group(labels)
        baselines.append(tradeoff.LABELS)
    for baseline in baselines:
        scored = panels(
            seen, partial(_scores, samples, baseline), list(_scored(seen, baseline)), per="workload"
        )
        groups += group(scored, f"Task scores, and {baseline.faster} over {baseline.name}")
    return Section(
        "tradeoff",
        "Answers against speed-up",
        _NOTE + _OF_LABELS * bool(labels) if groups else _why_nothing(seen),
        groups,
        short="Trade-off",
        finding=_finding(seen),
    )


def _why_nothing(seen: Overview) -> str:
    own = [c for c in seen.cells if c.value("speedup") is not None and not c.variant.is_reference]
    if not own:
        return "Nothing to draw: no backend could be compared with the reference."
    if all(cell.variant.is_replay for cell in own):
        return "Nothing to draw: decisions were replayed, which says nothing of answers."
    return "Nothing to draw: no answers could be compared with the reference's."


def _finding(seen: Overview) -> str:
    every = [c for c in sound(seen.cells, "speedup") if not c.variant.is_reference]
    own = [c for c in every if not c.variant.is_replay] or every
    if not own:
        rates = label_rates.finding([c for c in seen.cells if not c.variant.is_reference], _OTHER)
        return rates or f"No backend has a valid speed-up over {_OTHER}."
    faster = [c for c in own if (its := speed([c])) is not None and its.is_faster]
    replayed = " with replayed decisions" * own[0].variant.is_replay
    one, several = f"The 1 valid cell{replayed}", f"{len(own)} valid cells{replayed}"
    than = "shown to be faster than the reference"
    if not faster:
        return f"{f'{one} is not' if len(own) == 1 else f'None of {several} is'} {than}."
    are = "is" if len(faster) == 1 else "are"
    said = f"{one if len(own) == 1 else f'Of {several} {len(faster)}'} {are} {than}"
    if len(own) > 1:
        chance = significant(len(own) / _ONE_IN, 1)
        said += f" (each by its own interval: about {chance} of {len(own)} equal ones would be too)"
    if replayed:
        return f"{said}."
    same = sum(c.value("consistency_ratio") == 1 for c in faster)
    if len(faster) == 1:
        return f"{said}, {'with' if same else 'but not with'} all of its answers."
    return f"{said}, {same or 'none'} of these with all of its answers."


def _scored(seen: Overview, baseline: tradeoff.BaselineMetrics) -> Iterator[Cell]:
    for cell in measured(seen):
        if baseline.times(cell) is not None and not cell.variant.is_replay:
            yield cell


def _scores(samples: Samples, baseline: tradeoff.BaselineMetrics, place: Place) -> Iterator[Panel]:
    """A panel of the first score that the workload has, where somebody's differs."""
    for metric, name in QUALITY.items():
        found = [
            (cell, score_interval(means)[0])
            for cell in place.cells
            if (means := samples.scores_of(cell, metric))
        ]
        if found and not all(baseline.is_of(cell.variant) for cell, _ in found):
            title = f"{name} against {baseline.faster} over {baseline.name}{place.words}"
            paint = partial(
                tradeoff.quality_against_speedup,
                points=found,
                baseline=baseline,
                metric_label=name,
            )
            yield Panel(paint, title, f"{place.workload}: {name}")
            return


def against(seen: Overview, baseline: tradeoff.BaselineMetrics) -> list[Panel]:
    """A panel per workload with all that a baseline can be compared with."""
    cells = [cell for cell in measured(seen) if baseline.compares(cell)]
    return panels(seen, partial(_points, baseline), cells, per="workload")


def _points(baseline: tradeoff.BaselineMetrics, place: Place) -> Iterator[Panel]:
    if all(baseline.is_of(cell.variant) for cell in place.cells):
        return
    over = f"{baseline.faster} over {baseline.name}"
    title = f"Share of {baseline.alike} against {over}{place.words}"
    paint = partial(tradeoff.consistency_against_speedup, cells=place.cells, baseline=baseline)
    yield Panel(paint, title)
