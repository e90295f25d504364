"""Distributions of each latency over the requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from reports.cells import Cell, Overview
from reports.collect import Samples, pooled
from reports.figures import latency
from reports.numbers import counted, ratio
from reports.panels import Panel, PanelGroup, Place, Size, folded, panels
from reports.sections import Section
from reports.words.findings import place, sound, span

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
        "Share of requests at or under each latency, all repeats together. Up and left is better. "
        "Faint: not valid, or answers of unequal lengths, whose whole times do not compare."
    )
    if len(kept) < len(every):
        note += " Only the first loads are drawn; the table has the percentiles of all."
    return Section(
        "distributions",
        "Latency distributions",
        note,
        kept,
        short="Distributions",
        finding=_finding(seen.cells),
    )


def _finding(cells: Sequence[Cell]) -> str:
    """How much later the late ones are."""
    known = [c for c in sound(cells, "e2e_s_p95") if c.has_samples_for("p95")]
    tails = {c: (c.value("e2e_s_p95") or 0.0) / half for c in known if (half := _median(c))}
    if not tails:
        return (
            "No cell has both the requests that a p95 needs and a whole answer's time that holds."
        )
    worst = max(tails, key=lambda cell: tails[cell])
    return (
        f"The p95 of a whole answer's time is {span(tails.values(), ratio)} times its median "
        f"({counted(len(tails), 'cell')}; most: {place(worst)})."
    )


def _median(cell: Cell) -> float | None:
    return cell.value("e2e_s_p50")


def _curves(samples: Samples, place: Place) -> Iterator[Panel]:
    for metric, name in latency.LATENCIES.items():
        values = samples.latencies[metric]
        curves = {cell: pooled(values[cell]) for cell in place.cells if cell in values}
        if not any(len(v) for v in curves.values()):
            continue
        title = f"{name}, distribution over requests{place.words}"
        paint = partial(latency.distribution, curves=curves, metric=metric)
        yield Panel(paint, title, f"{place.workload}: {name.lower()}", Size())
