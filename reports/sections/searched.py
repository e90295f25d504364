"""Takes the probes of searches for the highest rate out of what a page compares."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from reports.cells import Cell, Overview, overview
from results.goodput.stored import StoredSearch, read_searches

if TYPE_CHECKING:
    from results import Run


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
        """Its name, with the model's where the run has several: each probe draws other rows, which
        a cell's label would count up."""
        name = str(self.cell.metrics["workload"])
        return f"{name} on {self.cell.model}" if self.cell.model else name


def without_probes(run: Run) -> tuple[Run, Overview]:
    """The run without the probes, and its cells; the probes are behind `Overview.searched` alone.
    Variants are those of the whole run, so that a system has one colour. Raises `UserError` for a
    broken goodput.json."""
    searches = read_searches(run.path)
    if searches is None or not searches.trials:
        return run, overview(run)
    whole = overview(run)
    rows, places = {row["key"]: row for row in whole.rows}, whole.by_key()
    searched = tuple(
        SearchedSystem(
            places[keys[-1]],
            one,
            searches.share,
            searches.confidence,
            sum(not rows[key]["valid"] for key in keys),
        )
        for one in searches.systems
        if (keys := [key for key in one.keys if key in rows])
    )
    rest = run.without(searches.trials)
    if not rest.stored:
        return run, dataclasses.replace(whole, cells=(), rows=(), searched=searched)
    return rest, dataclasses.replace(overview(rest, whole.variants), searched=searched)
