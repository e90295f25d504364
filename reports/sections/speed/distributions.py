"""Distributions of each latency over the requests."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from reports.cells import Overview
from reports.collect import Samples, pooled
from reports.figures import latency
from reports.panels import Panel, PanelGroup, Place, Size, folded, panels
from reports.sections import Section

_LIMIT = 60
"""At most so many panels; a sweep with more cells is read in the table."""


def section(seen: Overview, samples: Samples) -> Section:
    """A fold per load, in it a panel per workload and latency, as far as there is room."""
    every = folded(panels(seen, partial(_curves, samples), seen.cells))
    kept: list[PanelGroup] = []
    for one in every:
        if not kept or sum(len(group.panels) for group in (*kept, one)) <= _LIMIT:
            kept.append(one)
    note = (
        "Share of requests at or under each latency, all repeats together. Up and left is better."
    )
    if len(kept) < len(every):
        note += " Only the first loads are drawn; the table has the percentiles of all."
    return Section("distributions", "Latency distributions", note, kept, short="Distributions")


def _curves(samples: Samples, place: Place) -> Iterator[Panel]:
    for metric, name in latency.LATENCIES.items():
        values = samples.latencies[metric]
        curves = {cell: pooled(values[cell]) for cell in place.cells if cell in values}
        if not any(len(v) for v in curves.values()):
            continue
        title = f"{name}, distribution over requests{place.words}"
        paint = partial(latency.distribution, curves=curves)
        yield Panel(paint, title, f"{place.workload}: {name.lower()}", Size())
