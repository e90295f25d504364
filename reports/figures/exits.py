"""Early predictions: where tokens leave, what that was to gain and gained, and the threshold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reports.cells import Cell
from reports.figures.axes import LabelledRows, rule, tag, value_axis
from reports.numbers import percent, ratio
from reports.svg import GRID, INK, SURFACE
from reports.words.ranking.label_rates import are_labels, counted_in
from reports.words.techniques import counts_hold, leaves_early

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROOM_FOR_A_NUMBER = 6.0
"""Percent of the axis that a layer's number needs."""


class Shares(NamedTuple):
    """Where a cell's tokens (or labels) were committed, as shares of them all."""

    by_layer: dict[str, float]
    full_depth: float
    rejected: float
    """Drafts thrown away per committed token; beyond the other shares, which add up to 1."""


def shares(cell: Cell, count: str = "exits") -> Shares | None:
    """None without exit layers, or where nothing was decoded. What no kept draft told a full pass
    did: one token, or none where all its rows were drafts that stood (a pipeline's).

    `count`: of a batch that leaves together "exits" are its own, "own_exits" those that its
    sequences would have made alone.
    """
    exits = cell.metrics.get("exits_by_layer")
    rate = cell.value("early_prediction_rate")
    if exits and rate is None:
        early_by_layer = {layer: counts[count] for layer, counts in exits.items()}
        if are_labels(cell):
            # every input is asked at the first ramp
            return _of_all(early_by_layer, next(iter(exits.values()))["checks"])
        return _of_batches(cell, early_by_layer)
    if not exits or rate is None:
        return None
    early = sum(counts["exits"] for counts in exits.values())
    passes = early * (1 - rate) / rate if rate else 1.0
    accepted = {layer: counts["accepted"] for layer, counts in exits.items()}
    stood = sum(accepted.values())
    per_pass = cell.value("tokens_per_step")
    tokens = stood + passes if per_pass is None else max(stood, passes * per_pass)
    return Shares(
        {layer: count / tokens for layer, count in accepted.items()},
        1 - stood / tokens,
        (early - sum(accepted.values())) / tokens,
    )


def _of_batches(cell: Cell, exits: Mapping[str, float]) -> Shares | None:
    """Tokens decoded in steps that read prompts went through all layers."""
    batches = cell.metrics.get("exits_by_batch") or {}
    tokens = sum(int(size) * counts["steps"] for size, counts in batches.items())
    if not tokens:
        return None
    return _of_all(exits, tokens + (cell.value("mixed_steps") or 0.0))


def _of_all(exits: Mapping[str, float], count: float) -> Shares | None:
    if not count:
        return None
    early = {layer: exited / count for layer, exited in exits.items()}
    return Shares(early, (count - sum(exits.values())) / count, 0.0)


def histogram(axes: Axes, cells: Sequence[Cell], name: Callable[[Cell], str]) -> None:
    """A stacked bar per cell, grouped by workload: shallow exits first, full depth last. Where a
    batch leaves together, a thin one below it has the exits of its sequences alone."""
    rows = LabelledRows(axes, name)
    widest = 100.0
    for cell in cells:
        y = rows.place(cell)
        found = shares(cell)
        if found is None:
            continue
        widest = max(widest, 100 + 100 * found.rejected)
        alone = shares(cell, "own_exits") if _shares_batches(cell) else None
        if alone is None:
            _stack(axes, cell, found, BarPlace(y, 0.68))
        else:
            _stack(axes, cell, found, BarPlace(y - 0.09, 0.5))
            _stack(axes, cell, alone, BarPlace(y + 0.26, 0.16, is_thin=True))
    rows.finish()
    rule(axes, x=100.0)
    axes.set_xlim(0, widest * 1.03)
    axes.set_xticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100"])
    axes.set_xlabel(f"% of committed {counted_in(cells)}")


def _shares_batches(cell: Cell) -> bool:
    return (cell.value("mean_decode_batch") or 1.0) > 1.0


def believed(cell: Cell) -> bool:
    """Whether the cell's exits are as they were counted, whatever its times are."""
    # what makes times doubtful leaves exits as they are; drafts are judged by all that is doubted
    return counts_hold(cell) if leaves_early(cell) else cell.stands_alone


class BarPlace(NamedTuple):
    """Where a bar stands."""

    y: float
    height: float
    is_thin: bool = False
    """Without room for numbers: what sequences would have done alone."""


def _stack(axes: Axes, cell: Cell, found: Shares, place: BarPlace) -> None:
    left, faded = 0.0, 1.0 if believed(cell) else 0.35
    parts = [*found.by_layer.items(), ("all", found.full_depth)]
    words = [f"layer {layer} {percent(share)}%" for layer, share in found.by_layer.items()]
    words.append(f"full depth {percent(found.full_depth)}%")
    if cell.value("early_prediction_rate") is not None:
        words.append(f"rejected {percent(found.rejected)}%")
    note = f"{cell.workload}, {'alone ' * place.is_thin}{', '.join(words)}"
    for number, (layer, share) in enumerate(parts):
        width, is_full = 100 * share, layer == "all"
        depth = number / max(len(found.by_layer), 1)
        bar = axes.barh(
            place.y, width, left=left, height=place.height, linewidth=0,
            color=GRID if is_full else cell.variant.colour,
            alpha=faded * (1 if is_full else 0.5 - 0.4 * depth),
        )  # fmt: skip
        tag(list(bar.patches), cell, note)
        if width >= _ROOM_FOR_A_NUMBER and not place.is_thin:
            text = axes.text(left + width / 2, place.y, layer, fontsize=7, ha="center")
            text.set(color=INK, va="center")
            tag(text, cell, note)
        left += width
    if found.rejected > 0:
        outline = axes.barh(
            place.y, 100 * found.rejected, left=left, height=place.height, facecolor="none",
            edgecolor=cell.variant.colour, linewidth=0.9, alpha=faded,
        )  # fmt: skip
        tag(list(outline.patches), cell, note)


def predicted_and_measured(axes: Axes, cells: Sequence[Cell]) -> None:
    """Per cell the measured speed-up (dot and interval), the prediction from its own exits (ring)
    and the promise of the calibration text (bar)."""
    rows = LabelledRows(axes)
    for cell in cells:
        y = rows.place(cell)
        measured, own = cell.value("speedup_native"), cell.value("predicted_speedup")
        if measured is None or own is None:
            continue
        low = cell.low("speedup_native") or measured
        high = cell.high("speedup_native") or measured
        colour = cell.variant.colour
        alpha = 1.0 if cell.holds("speedup_native") else 0.35
        drawn: list[Any] = []
        note = f"{cell.workload}, measured {ratio(measured)}×, predicted {ratio(own)}×"
        if (promised := promise(cell)) is not None:
            drawn += axes.plot(
                promised, y, "|", color=colour, markersize=8, markeredgewidth=1.6, alpha=alpha
            )
            note += f", promised {ratio(promised)}×"
        drawn += axes.plot([low, high], [y, y], color=colour, linewidth=1.6, alpha=0.6 * alpha)
        drawn += axes.plot(
            own, y, "o", markerfacecolor=SURFACE, markeredgecolor=colour, markersize=5.6,
            alpha=alpha,
        )  # fmt: skip
        drawn += axes.plot(measured, y, "o", color=colour, markersize=5, alpha=alpha)
        tag(drawn, cell, note)
    rows.finish()
    rule(axes, x=1.0)
    axes.margins(x=0.06)
    value_axis(axes, "x", [])
    axes.set_xlabel("speed-up over autoregressive (×)")


def promise(cell: Cell) -> float | None:
    """What the backend predicted of itself on its calibration text, before anything ran."""
    value = cell.measured.predicted_speedup
    return float(value) if isinstance(value, int | float) else None
