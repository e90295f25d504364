"""Open loads that leave systems idle: rates measured there are the load's, not the system's."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from reports.cells import Cell
from reports.collect import Samples
from reports.numbers import counted, percent, significant
from reports.words.findings import span

_TENTH = 0.1
THE_LOADS = "the load's"


class OfferedLoad(NamedTuple):
    """What came to a cell of an open load, and what became of it; medians over its repeats."""

    cell: Cell
    offered: float
    """Requests per second, as their arrivals came to."""
    answered: float
    """Requests per second, up to the last answer."""
    busy: float
    """The share of that time in which any request was on its way."""
    kept_up: bool
    """Whether answers fell no further behind requests, in most repeats."""

    @property
    def is_the_loads(self) -> bool:
        """Whether more could have been answered: as many were as came, up to a tenth; or answers
        fell no further behind; or the system had nothing to do for over a tenth of the time."""
        as_many = self.answered >= (1 - _TENTH) * self.offered
        return as_many or self.kept_up or self.busy < 1 - _TENTH


def offered_load(cell: Cell, samples: Samples) -> OfferedLoad | None:
    """None of a closed load, in which as many come as are answered, and without numbers."""
    offered, answered = cell.value("realised_rate_per_s"), cell.value("request_per_s")
    repeats = samples.open_repeats.get(cell)
    if offered is None or answered is None or not repeats:
        return None
    busy = statistics.median(one.busy for one in repeats)
    kept_up = 2 * sum(one.kept_up for one in repeats) >= len(repeats)
    return OfferedLoad(cell, offered, answered, busy, kept_up)


def unfilled(cells: Iterable[Cell], samples: Samples) -> list[OfferedLoad]:
    """The cells whose throughput and goodput are the load's."""
    found = (offered_load(cell, samples) for cell in cells)
    return [one for one in found if one is not None and one.is_the_loads]


def sentences(cells: Iterable[Cell], samples: Samples) -> Iterator[str]:
    """For each open load (and model) that left systems idle, what came and how busy they were."""
    cells = list(cells)
    groups: dict[str, list[OfferedLoad]] = {}
    for one in unfilled(cells, samples):
        groups.setdefault(one.cell.condition, []).append(one)
    for condition, own in groups.items():
        every = sum(
            c.condition == condition and offered_load(c, samples) is not None for c in cells
        )
        came = span((one.offered for one in own), significant)
        answered = span((one.answered for one in own), significant)
        busy = span((one.busy for one in own), percent)
        some = "No system is" if len(own) == every else f"{len(own)} of {every} cells are not"
        yield (
            f"{some} filled by {condition}: {came} requests per second came, {answered} were "
            f"answered up to the last one's end, and for {busy}% of that time any request was on "
            f"its way; no queue grew in {sum(one.kept_up for one in own)} of "
            f"{counted(len(own), 'cell')}. Throughput and goodput there are the load's, not the "
            "system's; latencies are the system's."
        )


def told_beside(loads: Iterable[str], cells: Iterable[Cell], samples: Samples) -> dict[str, str]:
    """By load, of those that leave systems idle: what a rate there is, in few words."""
    cells = list(cells)
    found = {}
    for load in loads:
        own = [one for c in cells if c.load == load and (one := offered_load(c, samples))]
        idle = [one for one in own if one.is_the_loads]
        came = span((one.offered for one in own), significant)
        if idle and len(idle) == len(own):
            found[load] = f"{came}/s came, which fills no system: rates are the load's"
        elif idle:
            where = f"in {len(idle)} of {counted(len(own), 'cell')}"
            found[load] = f"{came}/s came, and rates are the load's {where}"
    return found
