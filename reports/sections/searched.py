"""Takes the probes of searches and sweeps of rates out of what a page compares."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reports.cells import Cell, Overview, overview
from results.compare.machines import workload_asked
from results.goodput.stored import (
    StoredCurve,
    StoredSearch,
    probes,
    read_curves,
    read_searches,
)

if TYPE_CHECKING:
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
    rows, places = {row["key"]: row for row in whole.rows}, _labelled(run, whole, kept)
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
        empty = dataclasses.replace(whole, cells=(), rows=())
        return run, dataclasses.replace(empty, searched=searched, swept=swept)
    return rest, dataclasses.replace(kept, searched=searched, swept=swept)


def _labelled(run: Run, whole: Overview, kept: Overview | None) -> dict[str, Cell]:
    """Trial key -> its cell, under the label that its workload has beside the probes, which the
    page's filters know; its name where it has none. Each probe draws other rows, which labels of
    all would count up."""
    asked = {s.record.key: workload_asked(s.record.trial) for s in run.stored}
    labels: dict[str, str] = {}
    beside: dict[str, Cell] = kept.by_key() if kept else {}
    for key, cell in beside.items():
        labels.setdefault(asked[key], cell.workload)
    return {
        key: dataclasses.replace(cell, workload=labels.get(asked[key], _name(cell)))
        for key, cell in whole.by_key().items()
    }


def _name(cell: Cell) -> str:
    """Of a workload, with the model's where the run has several."""
    name = str(cell.metrics["workload"])
    return f"{name} on {cell.model}" if cell.model else name


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
