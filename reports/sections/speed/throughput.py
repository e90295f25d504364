"""Throughput of every cell, as bars."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from reports.cells import Overview
from reports.collect import Samples
from reports.figures import throughput
from reports.panels import Panel, Place, group, panels, rows
from reports.sections import Section


def section(seen: Overview, _: Samples) -> Section:
    """A panel per load; per workload where there is one load."""
    note = "Median over the repeats; the thin line is the range of the repeats. Longer is better."
    groups = group(panels(seen, _bars, per="load" if len(seen.loads) > 1 else "both"))
    return Section("throughput", "Throughput", note, groups)


def _bars(place: Place) -> Iterator[Panel]:
    title = f"Output tokens per second by workload and backend{place.words}"
    headed = place.workload is None
    size = rows(len(place.cells), headed * len({cell.workload for cell in place.cells}))
    yield Panel(partial(throughput.bars, cells=place.cells, headed=headed), title, size=size)
