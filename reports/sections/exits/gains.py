"""What batches that leave early gain over all layers: the early-exit paper's figures 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from reports.cells import Overview
from reports.collect import Samples
from reports.figures import throughput
from reports.numbers import ratio
from reports.panels import Panel, PanelGroup, Place, group, panels
from reports.sections import Section
from reports.words import techniques
from reports.words.doubts.doubt import UNEQUAL_SHORT
from reports.words.findings import extremes

GAINS = {
    "Throughput": throughput.Quantity(
        "throughput_ratio", "throughput over full (×)", "×", is_ratio=True
    ),
    "Inner-token latency": throughput.Quantity(
        "inner_token_latency_ratio", "times shorter than full's (×)", "×", is_ratio=True
    ),
}
_NOTE = (
    "Output tokens (labels) per second over the reference's, and the reference's inner-token "
    "latency over this one, in the same repeat (the early-exit paper's figures 1 and 2). Median "
    "over the repeats; the thin line is their range. Dashed: full. Longer is better. Faint: not "
    f"valid; '{UNEQUAL_SHORT}' is said of a cell that is valid by itself, but whose answers are "
    "longer or shorter than the reference's, so that tokens per second are of other work."
)


def section(seen: Overview, _: Samples) -> Section | None:
    """A panel per quantity and load; None where nothing leaves early or has a reference."""
    groups: list[PanelGroup] = []
    for name, quantity in GAINS.items():
        cells = [
            cell
            for cell in seen.cells
            if techniques.leaves_early(cell) and cell.value(quantity.metric) is not None
        ]
        groups += group(panels(seen, partial(_bars, name, quantity), cells, per="load"), name)
    if not groups:
        return None
    own = [cell for cell in seen.cells if techniques.leaves_early(cell)]
    return Section(
        "gains",
        "Early exit against full",
        _NOTE,
        groups,
        short="Against full",
        finding=extremes("Throughput over full:", own, "throughput_ratio", ratio, "×"),
    )


def _bars(name: str, quantity: throughput.Quantity, place: Place) -> Iterator[Panel]:
    title = f"{name} against full by workload and technique{place.words}"
    cells, label = place.cells, techniques.naming(place.cells)
    yield Panel(partial(throughput.bars, cells=cells, quantity=quantity, name=label), title)
