"""Throughput of every cell, as bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from reports.cells import Overview
from reports.collect import Samples
from reports.figures import throughput
from reports.figures.axes import headings
from reports.numbers import significant
from reports.panels import Panel, Place, group, measured, panels, rows
from reports.sections import Section
from reports.words.doubts import one_wave
from reports.words.doubts.filled import sentences, told_beside
from reports.words.findings import extremes


def section(seen: Overview, samples: Samples) -> Section:
    """A panel per load; per workload where there is one load."""
    note = "Median over the repeats; the thin line is the range of the repeats. Longer is better."
    told = told_beside(seen.loads, seen.cells, samples)
    found, said = list[Panel](), list[str]()
    for quantity, own in throughput.by_kind(measured(seen)).items():
        bars = partial(_bars, told, quantity)
        found += panels(seen, bars, own, per="load" if len(seen.loads) > 1 else "both")
        said.append(extremes(f"{_title(quantity)}:", own, quantity.metric, significant))
    finding = " ".join(filter(None, said))
    words = [*sentences(seen.cells, samples), *one_wave.sentences(seen.cells)]
    return Section("throughput", "Throughput", note, group(found), words=words, finding=finding)


def _title(quantity: throughput.Quantity) -> str:
    return quantity.label.capitalize()


def _bars(told: Mapping[str, str], quantity: throughput.Quantity, place: Place) -> Iterator[Panel]:
    title = f"{_title(quantity)} by workload and backend{place.words}"
    count = headings(place.cells)
    headed = place.workload is None or count > 1
    size = rows(len(place.cells), headed * count)
    load = place.load or place.cells[0].load
    caption = f"{place.workload or load} ({told[load]})" if load in told else ""
    paint = partial(throughput.bars, cells=place.cells, quantity=quantity, headed=headed)
    yield Panel(paint, title, caption, size=size)
