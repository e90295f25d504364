"""The layer that batches leave at, against how many sequences they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reports.cells import Cell
from reports.figures.axes import rule, short_number, tag
from reports.svg import MUTED, SURFACE
from reports.words.techniques import counts_hold
from results.metrics.batch_exits import BatchExits, Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST_STEPS = 50
"""A mean over fewer steps is left out."""


class CellExits(NamedTuple):
    """One cell: what was measured at each batch size, and where its sequences exit on their own."""

    cell: Cell
    found: Sequence[BatchExits]
    own: Profile


def against_batch(axes: Axes, loads: Sequence[CellExits], alone: Profile, largest: int) -> None:
    """Measured (dot), what independent sequences would give (ring) and what each would need alone
    (bar), at each batch size of each load; the curve is the theory from exits counted in `alone`;
    one variant, one workload, batches up to `largest`."""
    from matplotlib.ticker import MaxNLocator, NullLocator

    depth = len(alone.cumulative)
    batches = _curve(largest)
    line = axes.plot(batches, [alone.layer(b) for b in batches], color=MUTED, linewidth=1.2)
    tag(line, loads[0].cell, f"theory, exits counted over {alone.tokens:,} tokens")
    for load in loads:
        for one in load.found:
            _point(axes, load, one)
    rule(axes, y=float(depth))
    if largest > 1:
        axes.set_xscale("log", base=2)
    ticks = [2**i for i in range(largest.bit_length()) if 2**i <= largest]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0.87, largest * 1.15)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.set_ylim(0, depth * 1.06)
    axes.set_xlabel("sequences in the batch")
    axes.set_ylabel("exit layer")


def _point(axes: Axes, load: CellExits, one: BatchExits) -> None:
    cell = load.cell
    colour, alpha = cell.variant.colour, 1.0 if counts_hold(cell) else 0.35
    theory, alone = load.own.layer(one.batch), load.own.layer(1)
    size = 3.0 + 2.2 * min(1.0, one.steps / 1000)
    drawn: list[Any] = []
    drawn += axes.plot(
        one.batch, alone, "_", color=colour, markersize=6, markeredgewidth=1.4, alpha=alpha
    )
    drawn += axes.plot(
        one.batch, theory, "o", markerfacecolor=SURFACE, markeredgecolor=colour, markersize=5.2,
        alpha=alpha,
    )  # fmt: skip
    drawn += axes.plot(one.batch, one.layer, "o", color=colour, markersize=size, alpha=alpha)
    note = (
        f"{cell.workload}, {cell.load}, {one.batch} in the batch, {round(one.steps):,} steps: "
        f"layer {short_number(one.layer)}, independent {short_number(theory)}, alone "
        f"{short_number(alone)}"
    )
    tag(drawn, cell, note)


def _curve(largest: int) -> list[int]:
    """Batch sizes to draw the curve through: all small ones, then steps of an eighth."""
    sizes, size = [], 1
    while size < largest:
        sizes.append(size)
        size = max(size + 1, size * 9 // 8)
    return [*sizes, largest]
