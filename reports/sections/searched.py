"""Takes the probes of searches and sweeps of rates out of what a page compares."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from reports.cells import Cell, Overview, overview
from reports.variants import workload_key, workload_labels
from reports.words.doubts.apart import setting_words
from reports.words.findings import named
from results.compare.machines import settings
from results.goodput.stored import (
    StoredCurve,
    StoredSearch,
    probes,
    read_curves,
    read_searches,
)

if TYPE_CHECKING:
    from harness.core.nouns import Model
    from results import Run

Row = Mapping[str, Any]


class SearchedSystem(NamedTuple):
    """What a search found of one system, and a cell of its probes."""

    cell: Cell
    found: StoredSearch
    share: float
    """Of the requests, that is to meet the objective."""
    confidence: float
    not_valid: int
    """Trials of the search."""

    @property
    def workload(self) -> str:
        """Its label, as the other cells of the run have it."""
        return self.cell.workload

    @property
    def place(self) -> str:
        """Equal for systems that may be ranked: the workload, and its setting and machine."""
        return named(self.cell, self.workload)


class SweptPoint(NamedTuple):
    """One load of a sweep; metrics are medians over its repeats."""

    rate: float
    """Requests per second that came about."""
    asked: float | None
    """None: one request at a time."""
    kept_up: bool
    values: Mapping[str, float]
    """Of `SHOWN`, those that have one."""


class SweptCurve(NamedTuple):
    """What a sweep found of one system, and a cell of its probes."""

    cell: Cell
    found: StoredCurve
    points: tuple[SweptPoint, ...]
    """By rate."""
    not_valid: int
    """Trials of the sweep."""

    @property
    def workload(self) -> str:
        """Its label, as a search's is."""
        return self.cell.workload

    @property
    def place(self) -> str:
        """As a search's is."""
        return named(self.cell, self.workload)

    @property
    def within(self) -> list[SweptPoint]:
        """The points that it kept up with."""
        return [point for point in self.points if point.kept_up]


SHOWN = ("ttft_s_p50", "tpot_s_p50", "e2e_s_p50", "output_tok_per_s", "request_per_s")


def without_probes(run: Run) -> tuple[Run, Overview]:
    """The run without the probes, and its cells; the probes are behind `Overview.searched` and
    `Overview.swept` alone. Variants are those of the whole run, so that a system has one colour.
    Raises `UserError` for a broken goodput.json or sweep.json."""
    found = probes(run.path)
    if not found:
        return run, overview(run)
    whole, searches, curves = overview(run), read_searches(run.path), read_curves(run.path)
    rest = run.without(found)
    kept = overview(rest, whole.variants) if rest.stored else None
    rows, places = {row["key"]: row for row in whole.rows}, _labelled(run, whole, kept, found)
    searched = tuple(
        SearchedSystem(
            places[keys[-1]],
            one,
            searches.share,
            searches.confidence,
            sum(not rows[key]["valid"] for key in keys),
        )
        for one in (searches.systems if searches else ())
        if searches and (keys := [key for key in one.keys if key in rows])
    )
    swept = tuple(_curves(curves, rows, places))
    if kept is None:
        empty = replace(whole, cells=(), rows=())
        return run, replace(empty, searched=searched, swept=swept)
    return rest, replace(kept, searched=searched, swept=swept)


def _labelled(
    run: Run, whole: Overview, kept: Overview | None, probed: Collection[str]
) -> dict[str, Cell]:
    """Trial key -> the cell of a probe, under the label that its workload has beside the probes,
    which the page's filters know; where it has none, under one that tells the run's workloads
    apart. Each probe draws other rows, which labels of all would count up, and other seeds, which
    are no setting of it."""
    records = {one.record.key: one.record for one in run.stored}
    drawn = {key: replace(one.trial.workload, checksum=None) for key, one in records.items()}
    asked = {key: (workload_key(one), records[key].trial.model) for key, one in drawn.items()}
    beside: dict[tuple[str, Model], str] = {}
    for key, cell in kept.by_key().items() if kept else ():
        beside.setdefault(asked[key], cell.workload)
    names, own = (
        workload_labels([*drawn.values()]),
        [records[key] for key in asked if key in probed],
    )
    words = setting_words(own, [*settings(own).values()])
    apart = dict(zip((one.key for one in own), words, strict=True))
    return {
        key: replace(
            cell,
            workload=beside.get(asked[key]) or _on(names[asked[key][0]], cell.model),
            apart=apart[key],
        )
        for key, cell in whole.by_key().items()
        if key in apart
    }


def _on(workload: str, model: str) -> str:
    """With the model where the run has several."""
    return f"{workload} on {model}" if model else workload


def _curves(
    curves: Iterable[StoredCurve], rows: Mapping[str, Row], places: Mapping[str, Cell]
) -> Iterator[SweptCurve]:
    for one in curves:
        keys = [key for point in one.points for key in point.keys if key in rows]
        points = [
            _point(point.rate, point.kept_up, own)
            for point in one.points
            if (own := [rows[key] for key in point.keys if key in rows])
        ]
        if points:
            doubtful = sum(not rows[key]["valid"] for key in keys)
            ordered = tuple(sorted(points, key=lambda point: point.rate))
            yield SweptCurve(places[keys[-1]], one, ordered, doubtful)


def _point(asked: float | None, kept_up: bool, rows: Sequence[Row]) -> SweptPoint:
    found = {
        name: statistics.median(values)
        for name in SHOWN
        if (values := [row[name] for row in rows if row[name] is not None])
    }
    name = "request_per_s" if asked is None else "realised_rate_per_s"
    rates = [row[name] for row in rows if row[name] is not None]
    return SweptPoint(statistics.median(rates) if rates else asked or 0.0, asked, kept_up, found)
