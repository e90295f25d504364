"""Goodput against the objective, tightened and loosened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from harness.core.nouns import Slo
from reports.cells import Cell, Overview
from reports.collect import SCALES, Samples
from reports.figures import throughput, tradeoff
from reports.numbers import counted, significant
from reports.panels import Panel, Place, folded, group, panels
from reports.sections import Section
from reports.sections.speed.load import RATE, by_arrivals
from reports.words.doubts.filled import sentences, told_beside
from reports.words.findings import sound, span

_GOODPUT = throughput.GOODPUT.metric


def section(seen: Overview, samples: Samples) -> Section:
    """A fold per load, in it a panel per workload."""
    groups = folded(panels(seen, partial(_curves, samples), seen.cells))
    words: list[str] = []
    note = finding = "The run has no objective (slo): goodput would be throughput, and is left out."
    if groups:
        finding = _finding(seen, samples)
        words = list(sentences(seen.cells, samples))
        note = (
            f"Requests per second that meet the objective ({objectives(seen.cells)}) when all "
            "its bounds are multiplied by the scale; dashed: the objective as given. Median over "
            "the repeats. Faint: not valid, or answers of unequal lengths: requests per second are "
            "then of unequal work."
        )
        rates = by_arrivals(cell for cell in seen.cells if cell.load_kind != "closed")
        over = [
            panel
            for kind, own in rates.items()
            for panel in panels(seen, partial(_rates, kind), own, per="workload")
        ]
        groups = [*groups, *group(over, "Against the rate")]
    return Section(
        "goodput",
        "Goodput against the objective",
        note,
        groups,
        words=words,
        short="Goodput",
        finding=finding,
    )


def objectives(cells: Iterable[Cell]) -> str:
    """``TTFT ≤ 60 ms, TPOT ≤ 11 ms``, and what else other cells have: a folder may hold several."""
    found = dict.fromkeys(_objective(cell.slo) for cell in cells if cell.has_slo)
    return "; of other rows ".join(found)


def _objective(slo: Slo) -> str:
    bounds = {"TTFT": slo.ttft_ms, "TPOT": slo.tpot_ms, "end to end": slo.e2e_ms}
    return ", ".join(f"{name} ≤ {b:g} ms" for name, b in bounds.items() if b is not None)


def _finding(seen: Overview, samples: Samples) -> str:
    known = [c for c in sound(seen.cells, _GOODPUT) if c.value("request_per_s")]
    if not known:
        return "No cell has a goodput that may be believed."
    every = [c for c in known if c.value(_GOODPUT) == c.value("request_per_s")]
    told = told_beside(seen.loads, known, samples)
    beside = "".join(f"; under {load} {words}" for load, words in told.items())
    return (
        f"{span((c.value(_GOODPUT) or 0.0 for c in known), significant)} requests per second meet "
        f"the objective as given, in {len(every)} of {counted(len(known), 'cell')} all that were "
        f"answered{beside}."
    )


def _rates(kind: str, place: Place) -> Iterator[Panel]:
    """At the objective as given; none of a single rate."""
    if len({cell.load_value for cell in place.cells}) < 2:
        return
    paint = partial(
        throughput.against_load, cells=place.cells, x_label=RATE, quantity=throughput.GOODPUT
    )
    title = f"Goodput against the rate{place.words}, {kind}"
    yield Panel(paint, title, f"{place.workload}, {kind}")


def _curves(samples: Samples, place: Place) -> Iterator[Panel]:
    curves = {
        cell: (SCALES, np.median(samples.goodput[cell], axis=0).tolist())
        for cell in place.cells
        if cell in samples.goodput
    }
    if curves:
        title = f"Goodput against the scale of the objective{place.words}"
        yield Panel(partial(tradeoff.goodput_against_scale, curves=curves), title)
