"""The highest rates that ``decodebench goodput`` found each system to sustain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from reports.cells import Overview
from reports.collect import Samples
from reports.figures.sustained import rate_over_scale, share_over_rate
from reports.numbers import counted, interval, percent, significant
from reports.panels import Panel, Size, group
from reports.sections import Section
from reports.sections.searched import SearchedSystem, SweptCurve
from reports.sections.speed.goodput import objectives
from reports.tables import QUALITY, BodyRow, Column, build
from reports.words.findings import span
from reports.words.ranking.rates import ranking

ID = "sustained"
_NOTE = (
    "The highest rate of Poisson arrivals at which {share}% of the requests meet the objective "
    "({slo}), searched on an engine that stays loaded. A point: one probe at the rate that its "
    "arrivals came to, with the {confidence}% interval of its share; vertical: the rate found, in "
    "the band of its interval; dashed: the share wanted. The probes enter no other figure of this "
    "page."
)


def section(seen: Overview, _: Samples) -> Section | None:
    """A panel per workload with all systems, a row per system; None where nothing was searched."""
    if not seen.searched:
        return None
    note = _NOTE.format(
        share=_listed(one.share for one in seen.searched),
        confidence=_listed(one.confidence for one in seen.searched),
        slo=objectives(one.cell for one in seen.searched),
    )
    places = list(dict.fromkeys(one.place for one in seen.searched))
    own = [[one for one in seen.searched if one.place == place] for place in places]
    words = [said for part in own for said in ranking(part, named=len(own) > 1)]
    figures = group(list(_panels(own)))
    figures += group(list(_scales(own)), "The rate over the objective")
    table = build(_COLUMNS, seen.searched, row)
    finding = words[0] if words else _alone(seen.searched)
    return Section(
        ID, "Sustained rate", note, figures, table, words, "", finding, is_open=not seen.cells
    )


def _alone(searched: Sequence[SearchedSystem]) -> str:
    """Where there is nobody to be ranked with."""
    rates = [rate for one in searched if (rate := one.found.sustained) is not None]
    at_least = "At least " * any(one.found.is_at_least for one in searched)
    told = f"{at_least}{span(rates, significant)}" if rates else "No"
    every = counted(len(searched), "system")
    return f"{told} requests per second sustained, {every} searched."


def _listed(shares: Iterable[float]) -> str:
    """In percent; a folder may hold several searches."""
    return " or ".join(dict.fromkeys(f"{share * 100:g}" for share in shares))


def _panels(parts: Sequence[Sequence[SearchedSystem]]) -> Iterator[Panel]:
    for part in parts:
        if any(one.found.probes for one in part):
            paint = partial(
                share_over_rate, searches=[(o.cell, o.found) for o in part], share=part[0].share
            )
            name, size = part[0].place, Size(width=5.2, height=2.8)
            title = f"Share of the requests within the objective over the rate: {name}"
            yield Panel(paint, title, name, size, workload=part[0].workload)


def _scales(parts: Sequence[Sequence[SearchedSystem]]) -> Iterator[Panel]:
    for part in parts:
        if any(one.found.scales for one in part):
            name, size = part[0].place, Size(width=5.2, height=2.8)
            paint = partial(rate_over_scale, searches=[(o.cell, o.found) for o in part])
            title = f"Sustained rate over the objective, times so much: {name}"
            yield Panel(paint, title, name, size, workload=part[0].workload)


def row(one: SearchedSystem | SweptCurve) -> BodyRow:
    """Of a system, whatever the load."""
    apart = one.cell.apart
    return BodyRow(one.cell.variant, one.workload, "", group=one.place, condition=apart)


def _found(one: SearchedSystem) -> float | str | None:
    rate = one.found.sustained
    return f"at least {significant(rate)}" if rate and one.found.is_at_least else rate


def _why(one: SearchedSystem) -> str:
    return f"no rate was missed: {one.found.ended}" if one.found.is_at_least else _WHY


def _interval(one: SearchedSystem) -> str | None:
    low, high = one.found.low, one.found.high
    return None if low is None or high is None else interval(low, high, significant)


def _nearest(one: SearchedSystem) -> float | None:
    """What the arrivals of the probe nearest to the found rate came to."""
    rate = one.found.sustained
    if rate is None or not one.found.probes:
        return None
    return min(one.found.probes, key=lambda probe: abs(probe.rate - rate)).came_about


def _asked(one: SearchedSystem) -> str:
    rate, probes = one.found.sustained, one.found.probes
    if rate is None or not probes:
        return ""
    near = min(probes, key=lambda probe: abs(probe.rate - rate))
    return f"asked {significant(near.rate)}, {percent(near.share)}% within"


def doubtful(one: SearchedSystem | SweptCurve) -> str:
    """How many of its trials are not valid; empty where all are."""
    return f"{counted(one.not_valid, 'trial')} not valid" if one.not_valid else ""


def _right(one: SearchedSystem) -> float | None:
    return None if one.found.answers is None else one.found.answers.right_per_s


def _score(one: SearchedSystem) -> str:
    answers = one.found.answers
    if answers is None:
        return ""
    ends = interval(answers.low, answers.high, significant)
    return f"{QUALITY[answers.score]} {significant(answers.mean)} {ends}"


_WHY = "no rate was found"
_COLUMNS: tuple[Column[SearchedSystem], ...] = (
    Column("Workload", lambda one: one.place, css=""),
    Column(
        "Found rate", _found, unit="requests/s", why=_WHY,
        sort=lambda one: repr(one.found.sustained),
    ),
    Column(
        "Interval", _interval, unit="requests/s", why=_why,
        sort=lambda one: repr(one.found.low or 0.0),
    ),
    Column(
        "Probes", lambda one: float(len(one.found.probes)), lambda value: f"{value:g}",
        small=doubtful,
    ),
    Column(
        "Right and in time", _right, unit="requests/s", small=_score,
        why="nothing says what is right",
        help="requests that meet the objective and are right, at the rate found, or the highest "
        "that held; the task score of the probes about it",
    ),
    Column("Search ended", lambda one: one.found.ended, css=""),
    Column("Limited by", lambda one: one.found.limit, css=""),
    Column(
        "Realised rate", _nearest, unit="requests/s", why=_WHY, small=_asked,
        help="that the arrivals of the probe nearest to the found rate came to",
    ),
)  # fmt: skip
