"""Whether speed is paid for with other answers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from reports.cells import Overview
from reports.collect import Samples
from reports.figures import tradeoff
from reports.panels import Panel, Place, group, measured, panels
from reports.sections import Section
from results.compare.pairing import NATIVE


def section(seen: Overview, _: Samples) -> Section:
    """A panel per workload against the reference, and against plain decoding."""
    groups = group(against(seen, tradeoff.REFERENCE))
    note = (
        "One point per backend and load; the line is the 95% interval of the speed-up. Dashed: the "
        "reference's speed, and how often it agrees with itself. Right and up is better."
        if groups
        else "Nothing to draw: no backend could be compared with the reference."
    )
    if not any(c.variant.is_reference and c.variant.backend == NATIVE for c in seen.cells):
        groups += group(against(seen, tradeoff.PLAIN), f"Against {NATIVE}")
    return Section("tradeoff", "Consistency against speed-up", note, groups, short="Trade-off")


def against(seen: Overview, baseline: tradeoff.BaselineMetrics) -> list[Panel]:
    """A panel per workload with all that a baseline can be compared with."""
    cells = [cell for cell in measured(seen) if baseline.compares(cell)]
    return panels(seen, partial(_points, baseline), cells, per="workload")


def _points(baseline: tradeoff.BaselineMetrics, place: Place) -> Iterator[Panel]:
    if all(baseline.is_of(cell.variant) for cell in place.cells):
        return
    title = f"Share of same answers against speed-up over {baseline.name}{place.words}"
    paint = partial(tradeoff.consistency_against_speedup, cells=place.cells, baseline=baseline)
    yield Panel(paint, title)
