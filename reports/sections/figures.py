"""The figures of the page, section by section: which panels there are, and what they show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from reports.cells import Cell, Overview
from reports.collect import SCALES, Samples, pooled, score_interval
from reports.figures import latency, throughput, tradeoff
from reports.figures.panel import (
    LABELS_IN,
    NARROW_IN,
    WIDTH_IN,
    Panel,
    draw,
    rows_height,
)
from reports.tables import QUALITY, Table
from results.compare.pairing import NATIVE

_CURVES_LIMIT = 60
"""At most so many panels of distributions; a sweep with more cells is read in the table."""


@dataclass(frozen=True, slots=True)
class PanelGroup:
    """Panels beside each other under a heading, or folded away under it."""

    panels: list[Panel]
    title: str = ""
    load: str | None = None
    fold: bool = False
    open: bool = False


@dataclass(frozen=True, slots=True)
class FigureSection:
    """A part of the page made of figures."""

    id: str
    title: str
    short: str
    """For the table of contents."""
    note: str
    groups: list[PanelGroup]
    table: Table | None = None
    words: Sequence[str] = ()
    """Sentences that the numbers come to."""


def sections(overview: Overview, samples: Samples) -> list[FigureSection]:
    """All figure sections, in reading order. Needs `figures.panel.drawing` around it."""
    return [
        _throughput(overview),
        _percentiles(overview),
        _distributions(overview, samples),
        _against_load(overview),
        _tradeoff(overview),
        _goodput(overview, samples),
        _quality(overview, samples),
    ]


def measured(overview: Overview) -> list[Cell]:
    """The cells that have numbers."""
    return [cell for cell in overview.cells if cell.is_measured]


def by_load(overview: Overview) -> Iterator[tuple[str, list[Cell]]]:
    """Each load that has measured cells, with them."""
    cells = measured(overview)
    for load in overview.loads:
        found = [cell for cell in cells if cell.load == load]
        if found:
            yield load, found


def panel_width(overview: Overview) -> float:
    """Inches of a panel that has one beside it per workload."""
    return NARROW_IN if len(overview.workloads) == 4 else WIDTH_IN


def rows_panel(cells: Sequence[Cell]) -> dict[str, float]:
    """The size of a panel with a row per cell."""
    headings = len({cell.workload for cell in cells})
    return {"height_in": rows_height(len(cells), headings), "left_in": LABELS_IN}


def _throughput(overview: Overview) -> FigureSection:
    panels = []
    for place, (load, cells) in enumerate(by_load(overview)):
        title = f"Output tokens per second by workload and backend, {load}"
        svg = draw(
            partial(throughput.bars, cells=cells),
            prefix=f"tp{place}-",
            title=title,
            **rows_panel(cells),
        )
        panels.append(Panel(svg, load, load=load))
    note = "Median over the repeats; the thin line is the range of the repeats. Longer is better."
    return FigureSection(
        "throughput", "Throughput", "Throughput", note, [PanelGroup(panels)][: len(panels)]
    )


def _percentiles(overview: Overview) -> FigureSection:
    groups = []
    for place, (load, cells) in enumerate(by_load(overview)):
        panels = [
            Panel(
                draw(
                    partial(latency.percentiles, cells=cells, metric=metric),
                    prefix=f"pc{place}-{metric}-",
                    title=f"{name}, median, p95 and p99 by workload and backend, {load}",
                    **rows_panel(cells),
                ),
                name,
                load=load,
            )
            for metric, name in latency.LATENCIES.items()
        ]
        groups.append(PanelGroup(panels, load, load, fold=True, open=place == 0))
    note = "● median, ○ p95, ❘ p99 over the requests, median over the repeats. Left is better."
    return FigureSection("latency", "Latency percentiles", "Latency", note, groups)


def _distributions(overview: Overview, samples: Samples) -> FigureSection:
    groups: list[PanelGroup] = []
    drawn = 0
    for place, (load, _) in enumerate(by_load(overview)):
        panels = list(_curves(overview, samples, load, f"cd{place}-"))
        if groups and drawn + len(panels) > _CURVES_LIMIT:
            continue
        drawn += len(panels)
        groups.append(PanelGroup(panels, load, load, fold=True, open=not groups))
    note = (
        "Share of requests at or under each latency, all repeats together. Up and left is better."
    )
    if len(groups) < len(list(by_load(overview))):
        note += " Only the first loads are drawn; the table has the percentiles of all."
    return FigureSection("distributions", "Latency distributions", "Distributions", note, groups)


def _curves(overview: Overview, samples: Samples, load: str, prefix: str) -> Iterator[Panel]:
    for place, (workload, own, cells) in enumerate(overview.scopes()):
        if own != load:
            continue
        for metric, name in latency.LATENCIES.items():
            values = samples.latencies[metric]
            curves = {cell: pooled(values[cell]) for cell in cells if cell in values}
            if not any(len(v) for v in curves.values()):
                continue
            title = f"{name}, distribution over requests: {workload}, {load}"
            paint = partial(latency.distribution, curves=curves)
            svg = draw(paint, prefix=f"{prefix}{place}-{metric}-", title=title)
            yield Panel(svg, f"{workload}: {name.lower()}", workload, load)


def _against_load(overview: Overview) -> FigureSection:
    panels = []
    for kind, x_label in (("closed", "concurrency"), ("poisson", "requests per second asked for"),
                          ("constant", "requests per second asked for")):  # fmt: skip
        for place, workload in enumerate(overview.workloads):
            cells = [c for c in measured(overview) if (c.workload, c.load_kind) == (workload, kind)]
            if len({cell.load_value for cell in cells}) < 2:
                continue
            title = f"Output tokens per second against {x_label}: {workload}"
            paint = partial(throughput.against_load, cells=cells, x_label=x_label)
            svg = draw(
                paint, prefix=f"ld{place}-{kind}-", title=title, width_in=panel_width(overview)
            )
            panels.append(Panel(svg, f"{workload}, {kind} load", workload))
    note = (
        "Median over the repeats; the band is their range. Hollow: not valid."
        if panels
        else "Nothing to draw: the run has one concurrency and one rate."
    )
    groups = [PanelGroup(panels)] if panels else []
    return FigureSection("load", "Throughput against load", "Load", note, groups)


def _tradeoff(overview: Overview) -> FigureSection:
    groups = [PanelGroup(panels)] if (panels := _tradeoffs(overview, tradeoff.REFERENCE)) else []
    note = (
        "One point per backend and load; the line is the 95% interval of the speed-up. Dashed: the "
        "reference's speed, and how often it agrees with itself. Right and up is better."
        if panels
        else "Nothing to draw: no backend could be compared with the reference."
    )
    if not any(c.variant.is_reference and c.variant.backend == NATIVE for c in overview.cells):
        native = _tradeoffs(overview, tradeoff.PLAIN)
        groups += [PanelGroup(native, f"Against {NATIVE}")][: len(native)]
    return FigureSection("tradeoff", "Consistency against speed-up", "Trade-off", note, groups)


def _tradeoffs(overview: Overview, baseline: tradeoff.BaselineMetrics) -> list[Panel]:
    panels = []
    for place, workload in enumerate(overview.workloads):
        cells = [
            cell
            for cell in measured(overview)
            if cell.workload == workload
            and cell.value(baseline.speedup) is not None
            and cell.value(baseline.consistency) is not None
        ]
        own = baseline is tradeoff.PLAIN
        if all(c.variant.backend == NATIVE if own else c.variant.is_reference for c in cells):
            continue
        title = f"Share of same answers against speed-up over {baseline.name}: {workload}"
        paint = partial(tradeoff.consistency_against_speedup, cells=cells, baseline=baseline)
        prefix = f"{'trn' if own else 'tr'}{place}-"
        svg = draw(paint, prefix=prefix, title=title, width_in=panel_width(overview))
        panels.append(Panel(svg, workload, workload))
    return panels


def _goodput(overview: Overview, samples: Samples) -> FigureSection:
    groups: list[PanelGroup] = []
    for place, (load, _) in enumerate(by_load(overview)):
        panels = []
        for number, (workload, own, cells) in enumerate(overview.scopes()):
            curves = {
                cell: (SCALES, np.median(samples.goodput[cell], axis=0).tolist())
                for cell in cells
                if cell in samples.goodput
            }
            if own != load or not curves:
                continue
            title = f"Goodput against the scale of the objective: {workload}, {load}"
            paint = partial(tradeoff.goodput_against_scale, curves=curves)
            svg = draw(
                paint, prefix=f"gp{place}-{number}-", title=title, width_in=panel_width(overview)
            )
            panels.append(Panel(svg, workload, workload, load))
        if panels:
            groups.append(PanelGroup(panels, load, load, fold=True, open=not groups))
    note = "The run has no objective (slo), so goodput is undefined."
    if groups:
        slo = next(cell.slo for cell in overview.cells if cell.has_slo)
        bounds = {"TTFT": slo.ttft_ms, "TPOT": slo.tpot_ms, "end to end": slo.e2e_ms}
        words = ", ".join(f"{name} ≤ {b:g} ms" for name, b in bounds.items() if b is not None)
        note = (
            f"Requests per second that meet the objective ({words}) when all its bounds are "
            "multiplied by the scale; dashed: the objective as given. Median over the repeats."
        )
    return FigureSection("goodput", "Goodput against the objective", "Goodput", note, groups)


def _quality(overview: Overview, samples: Samples) -> FigureSection:
    panels = []
    for place, workload in enumerate(overview.workloads):
        first = {c.variant.index: c for c in reversed(measured(overview)) if c.workload == workload}
        for metric, name in QUALITY.items():
            rows = [
                (cell, *score_interval(means))
                for index, cell in sorted(first.items())
                if (means := samples.scores.get((index, workload, metric)))
            ]
            if not rows:
                continue
            title = f"{name} on {workload} by backend"
            svg = draw(
                partial(tradeoff.quality, rows=rows, metric_label=name),
                prefix=f"ql{place}-{metric}-",
                title=title,
                width_in=panel_width(overview),
                height_in=rows_height(len(rows), 0),
                left_in=LABELS_IN,
                right_in=0.42,
            )
            panels.append(Panel(svg, f"{workload}: {name}", workload))
    note = (
        "Mean task score over the requests, all loads and repeats together, with its 95% interval."
        if panels
        else "No task scores were stored."
    )
    return FigureSection("quality", "Quality", "Quality", note, [PanelGroup(panels)][: len(panels)])
