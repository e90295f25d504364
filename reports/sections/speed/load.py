"""Throughput against concurrency, and against the rate asked for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from reports.cells import Overview
from reports.collect import Samples
from reports.figures import throughput
from reports.panels import Panel, Place, group, measured, panels
from reports.sections import Section

_AXES = {
    "closed": "concurrency",
    "poisson": "requests per second asked for",
    "constant": "requests per second asked for",
}


def section(seen: Overview, _: Samples) -> Section:
    """A panel per kind of load and workload, and one of all loads against the time per token."""
    found = []
    for kind in _AXES:
        own = [cell for cell in measured(seen) if cell.load_kind == kind]
        found += panels(seen, _lines, own, per="workload")
    both = panels(seen, _both, per="workload") if len(seen.loads) > 1 else []
    note = "Median over the repeats; the band is their range. Hollow: not valid. "
    if both:
        note += (
            "Against the time per token: a curve through all loads of a backend; right and down is "
            "better, and of two curves the one nearer to that corner serves more at the same pace."
        )
    if not found and not both:
        note = "Nothing to draw: the run has one concurrency and one rate."
    groups = [*group(found), *group(both, "Against the time per token")]
    return Section("load", "Throughput against load", note.strip(), groups, short="Load")


def _both(place: Place) -> Iterator[Panel]:
    title = f"Output tokens per second against the time per token{place.words}"
    yield Panel(partial(throughput.against_latency, cells=place.cells), title)


def _lines(place: Place) -> Iterator[Panel]:
    if len({cell.load_value for cell in place.cells}) < 2:
        return
    kind = place.cells[0].load_kind
    title = f"Output tokens per second against {_AXES[kind]}{place.words}"
    paint = partial(throughput.against_load, cells=place.cells, x_label=_AXES[kind])
    yield Panel(paint, title, f"{place.workload}, {kind} load")
