"""What batches that leave early gain over all layers: the early-exit paper's figures 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from reports.cells import Overview
from reports.collect import Samples
from reports.figures import throughput
from reports.panels import Panel, PanelGroup, Place, group, panels
from reports.sections import Section
from reports.words import techniques

GAINS = {
    "Throughput": throughput.Quantity(
        "throughput_ratio", "throughput over full (×)", "×", is_ratio=True
    ),
    "Inner-token latency": throughput.Quantity(
        "inner_token_latency_ratio", "times shorter than full's (×)", "×", is_ratio=True
    ),
}
_NOTE = (
    "Output tokens per second over the reference's, and the reference's inner-token latency "
    "over this one, in the same repeat (the early-exit paper's figures 1 and 2). Median over "
    "the repeats; the thin line is their range. Dashed: full. Longer is better."
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
    return Section("gains", "Early exit against full", _NOTE, groups, short="Against full")


def _bars(name: str, quantity: throughput.Quantity, place: Place) -> Iterator[Panel]:
    title = f"{name} against full by workload and technique{place.words}"
    cells, label = place.cells, techniques.label
    yield Panel(partial(throughput.bars, cells=cells, quantity=quantity, name=label), title)
