"""Closed loads with hardly more requests than are in flight at once: a burst, no full server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reports.cells import Cell

WAVES = 2
"""So many times as many requests as are in flight, for some to begin while others end."""


def sentences(cells: Iterable[Cell]) -> Iterator[str]:
    """For each closed load of fewer than `WAVES` waves, that it is one."""
    found: dict[str, tuple[int, int]] = {}
    for cell in cells:
        at_once, requests = int(cell.load_value or 0), int(cell.metrics["requests"] or 0)
        if cell.load_kind == "closed" and 1 < at_once <= requests < WAVES * at_once:
            found.setdefault(cell.load, (requests, at_once))
    for load, (requests, at_once) in found.items():
        yield (
            f"Under {load} {requests:,} requests are hardly more than one wave: {at_once:,} begin "
            "together, and as their answers end fewer are in flight. Rates there are a burst's, "
            "not those of a server that is kept full; for these ask "
            f"{WAVES * at_once:,} requests or more."
        )
