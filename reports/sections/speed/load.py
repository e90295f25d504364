"""Throughput against concurrency, and against the rate asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.figures import throughput
from reports.numbers import counted, ratio
from reports.panels import Panel, Place, group, measured, panels
from reports.sections import Section
from reports.words.doubts.filled import sentences
from reports.words.findings import beyond, geometric_mean
from reports.words.ranking.label_rates import rate

RATE = "requests per second asked for"


def by_arrivals(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """The cells of one kind of load, and of one burstiness, whose curves go over its concurrency or
    its rate; by what such loads are called. None of a trace, which has neither."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.load_value is not None:
            shape = cell.metrics.get("burstiness")
            bursts = "" if shape is None else f", burstiness {shape:g}"
            found.setdefault(f"{cell.load_kind} load{bursts}", []).append(cell)
    return found


def section(seen: Overview, samples: Samples) -> Section:
    """A panel per kind of load and workload, and one of all loads against the time per token."""
    found, kinds = list[Panel](), throughput.by_kind(measured(seen))
    for quantity, cells in kinds.items():
        for kind, own in by_arrivals(cells).items():
            found += panels(seen, partial(_lines, kind, quantity), own, per="workload")
    timed = kinds.get(throughput.TOKENS, [])
    both = panels(seen, _both, timed, per="workload") if len(seen.loads) > 1 else []
    note = "Median over the repeats; the band is their range. Hollow: not valid. "
    if both:
        note += (
            "Against the time per token: a curve through all loads of a backend; right and down is "
            "better, and of two curves the one nearer to that corner serves more at the same pace."
        )
    if not found and not both:
        note = "Nothing to draw: the run has one concurrency and one rate."
    groups = [*group(found), *group(both, "Against the time per token")]
    return Section(
        "load",
        "Throughput against load",
        note.strip(),
        groups,
        words=list(sentences(seen.cells, samples)),
        short="Load",
        finding=_finding(seen),
    )


def _finding(seen: Overview) -> str:
    """What more requests at a time bring."""
    closed = {
        (cell.variant.index, cell.workload, cell.asked, cell.load_value or 0.0): cell
        for cell in seen.cells
        if cell.load_kind == "closed" and cell.value(rate(cell)) is not None
    }
    own = {key: cell for key, cell in closed.items() if cell.holds(rate(cell))}
    if len({number for *_, number in closed}) < 2:
        return f"The run has {counted(len(seen.loads), 'load')}, and one concurrency at most."
    at_once = sorted({number for *_, number in own})
    means = _growths(own, at_once)
    if not means:
        return "No backend has a valid cell at both the fewest and the most requests at a time."
    ends = dict.fromkeys(end(means, key=lambda name: means[name]) for end in (min, max))
    grows = " to ".join(f"{ratio(means[name])} times ({name})" for name in ends)
    every = _growths(closed, at_once)
    valid = f"; valid at both: {len(means)} of {counted(len(every), 'backend')}"
    least, most = min(means.values()), max(means.values())
    void = [(mean, name) for name, mean in every.items() if name not in means]
    outside = beyond((least, most), void, lambda times: f"{ratio(times)} times")
    return (
        f"From {at_once[0]:g} to {at_once[-1]:g} requests at a time throughput grows {grows}, on "
        f"average over the workloads{valid * bool(void)}{outside}."
    )


def _growths(
    cells: Mapping[tuple[int, str, str, float], Cell], at_once: Sequence[float]
) -> dict[str, float]:
    """By backend what its throughput at the most requests at a time is over that at the fewest."""
    growth: dict[str, list[float]] = {}
    for (index, workload, asked, number), cell in cells.items():
        before = cells.get((index, workload, asked, at_once[0])) if len(at_once) > 1 else None
        if before and number == at_once[-1]:
            times = (cell.value(rate(cell)) or 0.0) / (before.value(rate(before)) or 1)
            growth.setdefault(cell.variant.label, []).append(times)
    return {name: mean for name, own in growth.items() if (mean := geometric_mean(own))}


def _both(place: Place) -> Iterator[Panel]:
    title = f"Output tokens per second against the time per token{place.words}"
    yield Panel(partial(throughput.against_latency, cells=place.cells), title)


def _lines(kind: str, quantity: throughput.Quantity, place: Place) -> Iterator[Panel]:
    if len({cell.load_value for cell in place.cells}) < 2:
        return
    axis = "concurrency" if place.cells[0].load_kind == "closed" else RATE
    title = f"{quantity.label.capitalize()} against {axis}{place.words}, {kind}"
    paint = partial(throughput.against_load, cells=place.cells, x_label=axis, quantity=quantity)
    yield Panel(paint, title, f"{place.workload}, {kind}")
