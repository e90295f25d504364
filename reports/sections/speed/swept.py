"""Each system from idle to saturation, as a sweep of an experiment found it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from reports.cells import Overview
from reports.collect import Samples
from reports.figures.swept import EACH, FIRST, RATE, WHOLE, over_load, throughput
from reports.numbers import counted, milliseconds, significant
from reports.panels import Panel, PanelGroup, Size
from reports.sections import Section
from reports.sections.searched import SweptCurve, SweptPoint
from reports.sections.speed.sustained import doubtful, row
from reports.tables import Column, Group, build
from reports.words.findings import span
from reports.words.ranking.curves import kept_up_with
from reports.words.ranking.label_rates import counted_in

_NOTE = (
    "Poisson arrivals at rates that each system found for itself, doubled until it no longer kept "
    "up and then between: one engine, which stayed loaded. A point: the medians of one load, at "
    "the rate that its arrivals came to; the first is one request at a time. Hollow: answers were "
    "behind requests by more at the end of the load than at its beginning, by 0.09 of its duration "
    "or more, and fell back further. Latencies of such points say how long the load lasted. These "
    "trials enter no other figure of this page, and nothing here is paired."
)


def section(seen: Overview, _: Samples) -> Section | None:
    """Up to four panels per workload with all systems, a row per system; None where nothing was
    swept."""
    if not seen.swept:
        return None
    places = list(dict.fromkeys(one.place for one in seen.swept))
    parts = [[one for one in seen.swept if one.place == place] for place in places]
    words = [said for part in parts for said in kept_up_with(part, named=len(parts) > 1)]
    groups = [PanelGroup(list(_panels(part)), part[0].place) for part in parts]
    table = build(_columns(seen.swept), seen.swept, row)
    title = "From idle to saturation"
    finding = words[0] if words else _alone(seen.swept)
    opened = not seen.cells
    return Section("swept", title, _NOTE, groups, table, words, "Saturation", finding, opened)


def _alone(swept: Sequence[SweptCurve]) -> str:
    """Where there is nobody to compare with."""
    rates = [one.found.low for one in swept if one.found.low is not None]
    every = counted(len(swept), "system")
    return f"Kept up with {span(rates, significant) or 'no'} requests per second, {every} swept."


def _panels(part: Sequence[SweptCurve]) -> Iterator[Panel]:
    name, handed_out = part[0].place, throughput(part[0])
    for x, y in ((RATE, FIRST), (RATE, EACH), (RATE, handed_out), (handed_out, WHOLE)):
        if all(y.of(point) is None for one in part for point in one.points):
            continue
        title = f"{y.label} over {x.label}"
        paint = partial(over_load, curves=part, x=x, y=y)
        size = Size(width=2.8, height=2.1, left=0.55)
        heading, workload = title[:1].upper() + title[1:], part[0].workload
        yield Panel(paint, f"{title}: {name}", heading, size, workload=workload)


def _idle(metric: str, one: SweptCurve) -> float | None:
    found = next((point for point in one.points if point.asked is None), None)
    return found.values.get(metric) if found else None


def _highest(one: SweptCurve) -> SweptPoint | None:
    """At the rate that is said to be kept up with: a probe beyond it, whose client was late or
    that went well where lower rates did not, is no answer."""
    most = (one.found.low or 0.0) * (1 + 1e-9)
    inside = (p for p in one.within if p.asked is not None and p.rate <= most)
    return max(inside, key=lambda p: p.rate, default=None)


def _loaded(metric: str, one: SweptCurve) -> float | None:
    found = _highest(one)
    return found.values.get(metric) if found else None


def _most(one: SweptCurve) -> float | None:
    known = (throughput(one).of(point) for point in one.points)
    return max((rate for rate in known if rate is not None), default=None)


_WHY = "no rate was kept up with"
_FIRST, _EACH = FIRST.metric, EACH.metric
_IDLE = Group("Idle", "ms", "one request at a time; medians")
_LOADED = Group("At the highest rate kept up with", "ms", "medians")
_COLUMNS: tuple[Column[SweptCurve], ...] = (
    Column("Workload", lambda one: one.place, css=""),
    Column("Kept up with", lambda one: one.found.low, unit="requests/s", why=_WHY),
    Column("Saturated at", lambda one: one.found.high, unit="requests/s",
           why="no rate was too much for most repeats"),
    Column("Most tokens", _most, unit="tokens/s"),
    Column("First token", partial(_idle, _FIRST), milliseconds, group=_IDLE),
    Column("Each token", partial(_idle, _EACH), milliseconds, group=_IDLE),
    Column("First token", partial(_loaded, _FIRST), milliseconds, group=_LOADED, why=_WHY),
    Column("Each token", partial(_loaded, _EACH), milliseconds, group=_LOADED, why=_WHY),
    Column(
        "Loads", lambda one: float(len(one.points)), lambda value: f"{value:g}", small=doubtful
    ),
    Column("Ended", lambda one: one.found.ended, css=""),
)  # fmt: skip


def _columns(swept: Sequence[SweptCurve]) -> list[Column[SweptCurve]]:
    """Where answers are labels, what they have: no time per token."""
    counted_of = counted_in(one.cell for one in swept)
    most = Column(f"Most {counted_of}", _most, unit=f"{counted_of}/s")
    columns = [most if column.title == "Most tokens" else column for column in _COLUMNS]
    if counted_of != "labels":
        return columns
    columns = [column for column in columns if column.title != "Each token"]
    return [replace(c, title="Label") if c.title == "First token" else c for c in columns]
