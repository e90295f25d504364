"""What becomes of each speed-up as the model grows: the answer to "would it hold on mine?"."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.figures import sizes as figures
from reports.figures.sizes import SizedSpeedup
from reports.numbers import ratio, significant
from reports.panels import Panel, PanelGroup
from reports.sections import Section
from reports.tables import BodyRow, Column, Group, bounds, build, places, scope
from reports.words.break_even import plain_beside
from reports.words.doubts.overhead import CHANGES, shrinking
from reports.words.scale import read_bytes
from results.compare.pairing import NATIVE

_NOTE = (
    "Speed-up over the reference against the bytes of weights that a pass reads. Hollow: "
    "overhead-bound (see the step times) or not valid. Dashed: where neither is faster."
)
NATIVE_SPEED = "speedup_native"


class Sized(NamedTuple):
    """A cell whose model's size is known, and what it is set against."""

    cell: Cell
    size_bytes: int
    plain: Cell | None
    """Plain decoding on the same engine."""
    bound: bool
    """Whether either side of its speed-up over the reference is overhead-bound."""

    @property
    def task(self) -> str:
        """The workload without the model."""
        return self.cell.workload.removesuffix(f" on {self.cell.model}")

    @property
    def over_plain(self) -> float | None:
        """Speed-up over plain decoding on the same engine."""
        if self.plain is None:
            return None
        return self.cell.value(self.metric)

    @property
    def metric(self) -> str:
        """The name of `over_plain`."""
        own = self.plain is not None and self.plain.variant.backend == NATIVE
        return NATIVE_SPEED if own else "speedup"

    def point(self) -> SizedSpeedup | None:
        """For the figure; None without a speed-up."""
        speedup = self.cell.value("speedup")
        if not speedup:
            return None
        holds = self.cell.holds("speedup")
        return SizedSpeedup(self.cell, self.size_bytes, speedup, holds, self.bound)


def section(seen: Overview, _: Samples) -> Section | None:
    """A panel per load and workload, a row per cell; None unless models of several sizes ran."""
    found = [own for own in sized(seen) if own.cell.value("speedup") is not None]
    if len({own.size_bytes for own in found}) < 2:
        return None
    table = build(COLUMNS, found, _row)
    groups = [PanelGroup(list(_panels(found)))]
    return Section("sizes", "Against the size of the model", _NOTE, groups, table,
                   sentences(found), "Model size", is_open=True)  # fmt: skip


def sized(seen: Overview) -> list[Sized]:
    """Every measured cell but the reference's whose model's bytes are known, by size within
    workload, load and variant."""
    found, bound = [], shrinking(seen.cells)
    for cell in seen.cells:
        size = read_bytes(cell.measured)
        if not size or not cell.is_measured or cell.variant.is_reference:
            continue
        found.append(Sized(cell, size, plain_beside(seen, cell), cell in bound))
    order = {text: place for place, text in enumerate(dict.fromkeys(own.task for own in found))}
    found.sort(key=lambda o: (order[o.task], o.cell.order, o.cell.variant.index, o.size_bytes))
    return found


def predicted(own: Sized) -> float | None:
    """What costs and decisions alone come to, over plain decoding on the same engine. AdaDecode's
    from the costs that it measured, for one request at a time: others share passes, of which these
    know nothing; for a batch that leaves together, plain decoding's step without
    the layers that did not run, and without the head where a check's logits serve, but with what
    checks and fills took."""
    if own.plain is None or own.plain.variant.backend == NATIVE:
        alone = (own.cell.load_kind, own.cell.load_value) == ("closed", 1)
        return own.cell.value("predicted_speedup") if alone else None
    plain, known = own.plain, own.cell.measured.pass_bytes
    step, engine = plain.value("step_s"), plain.value("overhead_share")
    skipped, mine = own.cell.value("early_exit_rate"), own.cell.value("step_s")
    inside = own.cell.value("overhead_share")
    if not step or engine is None or skipped is None or not mine or inside is None or not known:
        return None
    passes, layers = step * (1 - engine), known["layers"] * known["layer"] / own.size_bytes
    saved = passes * (layers * skipped + (1 - layers) * _heads_saved(own.cell))
    extra = (own.cell.value("check_time_share") or 0) + (own.cell.value("fill_time_share") or 0)
    took = step - saved + mine * (1 - inside) * extra
    return step / took if took > 0 else None


def _heads_saved(cell: Cell) -> float:
    """The share of steps whose tokens come from the logits of the check at which they left: where
    the check is the model's own head. All steps that may leave ask at the first layer."""
    if (cell.effective.get("measure"), cell.effective.get("heads")) != ("softmax", "original"):
        return 0.0
    by_layer = cell.metrics.get("exits_by_layer") or {}
    asked = max((counts.get("checks", 0) for counts in by_layer.values()), default=0)
    left = sum(counts.get("exits", 0) for counts in by_layer.values())
    return min(left / asked, 1.0) if asked else 0.0


def sentences(found: Sequence[Sized]) -> list[str]:
    """For each variant and load what becomes of its speed-up from the smallest model to the
    largest, over the workloads that it was measured on at every size."""
    words = []
    for key in dict.fromkeys((own.cell.variant.index, own.cell.load) for own in found):
        same = [own for own in found if (own.cell.variant.index, own.cell.load) == key]
        words.append(_sentence(same))
    return [text for text in words if text]


def _sentence(same: Sequence[Sized]) -> str:
    by_size: dict[int, list[Sized]] = {}
    for own in same:
        by_size.setdefault(own.size_bytes, []).append(own)
    tasks = set.intersection(*({own.task for own in found} for found in by_size.values()))
    if len(by_size) < 2 or not tasks:
        return ""
    by_size = {s: [own for own in found if own.task in tasks] for s, found in by_size.items()}
    sound = {size: all(o.cell.holds("speedup") for o in by_size[size]) for size in sorted(by_size)}
    means = [
        (size, _mean(own.cell.value("speedup") or 0.0 for own in by_size[size])) for size in sound
    ]
    cell = same[0].cell
    native = _over_plain([by_size[size] for size in sound])
    steps = ", ".join(
        f"{ratio(mean)}× on {by_size[size][0].cell.model} ({significant(size / 1e9, 2)} GB"
        + (")" if sound[size] else ", not valid)")
        for size, mean in means
    )
    over = sorted(tasks)[0] if len(tasks) == 1 else f"over {len(tasks)} workloads"
    text = f"{cell.variant.label}, {cell.load}, {over}: {steps}{native}."
    where = crossing(means)
    if where is not None and all(sound.values()):
        text += f" It crosses 1 at about {significant(where / 1e9, 2)} GB of weights."
    largest = means[-1][0]
    last = by_size[largest]
    if not sound[largest]:
        return text
    if any(own.bound for own in last):
        text += " Up to the largest model here the steps are overhead-bound: beyond it is unknown."
    elif all(own.plain and own.cell.value("floor_share") is not None for own in last):
        text += (
            " On this machine most of its steps is reading and multiplying there: what a larger "
            "model gains depends on how often it exits or accepts."
        )
    return text


def _over_plain(by_size: Sequence[Sequence[Sized]]) -> str:
    """Of a backend on an engine other than the reference's: the same over that engine's plain
    decoding, which is its own part. Empty where that is not sound at every size."""
    every = [own for found in by_size for own in found]
    if any(own.metric != NATIVE_SPEED or not own.cell.holds(NATIVE_SPEED) for own in every):
        return ""
    ratios = [f"{ratio(_mean(own.over_plain or 0.0 for own in found))}×" for found in by_size]
    return f"; over {NATIVE} {', '.join(ratios)}"


def crossing(means: Sequence[tuple[int, float]]) -> float | None:
    """The last size at which a speed-up passes 1, on a straight line over the logarithms of both
    between measured sizes; None where it does not."""
    found = None
    for (low, first), (high, second) in pairwise(means):
        if first > 0 < second and (first - 1) * (second - 1) < 0:
            share = math.log(first) / (math.log(first) - math.log(second))
            found = math.exp(math.log(low) + share * math.log(high / low))
    return found


def _mean(values: Iterable[float]) -> float:
    """Geometric, of those that are positive; 0 where none is."""
    kept = [math.log(value) for value in values if value > 0]
    return math.exp(sum(kept) / len(kept)) if kept else 0.0


def _panels(found: Sequence[Sized]) -> Iterator[Panel]:
    for task, load in dict.fromkeys((own.task, own.cell.load) for own in found):
        lines: dict[int, list[SizedSpeedup]] = {}
        for own in found:
            if (own.task, own.cell.load) == (task, load) and (point := own.point()):
                lines.setdefault(own.cell.variant.index, []).append(point)
        paint = partial(figures.against_size, lines=list(lines.values()))
        title = f"Speed-up against the size of the model: {task}, {load}"
        yield Panel(paint, title, f"{task}, {load}", load=load)


def _row(own: Sized) -> BodyRow:
    css = "invalid" * (not own.cell.holds("speedup"))
    return scope(own.cell)._replace(group=(own.task, own.cell.load), css=css)


_SPEED = Group("Speed-up over", "×")
COLUMNS: tuple[Column[Sized], ...] = (
    *places(lambda own: own.cell),
    Column("Weights", lambda own: own.size_bytes / 1e9, lambda value: significant(value, 2), "GB",
           "read by a pass"),
    Column("the reference", lambda own: own.cell.value("speedup"), ratio, group=_SPEED,
           small=lambda own: bounds(own.cell, "speedup")),
    Column("same engine, plain", lambda own: own.over_plain, ratio, group=_SPEED,
           small=lambda own: bounds(own.cell, own.metric) if own.over_plain else "",
           why="it is that engine's plain decoding, or that was not run"),
    Column("predicted", predicted, ratio, group=_SPEED,
           help="the same engine's, from costs and decisions alone",
           why="no costs were told, or requests shared passes"),
    Column("", lambda own: CHANGES if own.bound else "", css=""),
)  # fmt: skip
