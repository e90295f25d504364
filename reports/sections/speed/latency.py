"""Percentiles of each latency of every cell."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from reports.cells import Overview
from reports.collect import Samples
from reports.figures import latency
from reports.numbers import milliseconds
from reports.panels import Panel, Place, folded, panels
from reports.sections import Section
from reports.words.findings import extremes


def section(seen: Overview, _: Samples) -> Section:
    """A fold per load, in it a panel per latency."""
    note = (
        "● median, ○ p95, ❘ p99 over the requests, median over the repeats. Left is better. Faint: "
        "not valid, or answers of unequal lengths, whose whole times do not compare."
    )
    groups = folded(panels(seen, _percentiles, per="load"))
    finding = extremes("The median time per token:", seen.cells, "tpot_s_p50", milliseconds, " ms")
    return Section("latency", "Latency percentiles", note, groups, short="Latency", finding=finding)


def _percentiles(place: Place) -> Iterator[Panel]:
    for metric, name in latency.LATENCIES.items():
        title = f"{name}, median, p95 and p99 by workload and backend{place.words}"
        paint = partial(latency.percentiles, cells=place.cells, metric=metric)
        yield Panel(paint, title, name)
