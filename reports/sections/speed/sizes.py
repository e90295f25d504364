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
from reports.numbers import counted, ratio, significant
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
    told = over_sizes(found)
    by_bytes = sorted(found, key=lambda own: own.size_bytes)
    models = list(dict.fromkeys(own.cell.model for own in by_bytes))
    return Section("sizes", "Against the size of the model", _NOTE, groups, table,
                   sentences(told), "Model size", _finding(told, models) if told else "",
                   is_open=not told)  # fmt: skip


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


class OverSizes(NamedTuple):
    """What becomes of a variant's speed-up under a load, over the workloads that it was measured on
    at every size."""

    name: str
    passes_at: float | None
    """Bytes of weights at which it passes 1; None where it does not, or is not valid somewhere."""
    unsound: Sequence[str]
    """Models on which it is not valid."""
    is_bound: bool
    """Whether it is overhead-bound on the largest model, where it is valid there."""


def sentences(found: Sequence[OverSizes]) -> list[str]:
    """Where speed-ups pass 1, and of which nothing follows for larger models; the table has the
    rest."""
    passing = [
        f"{one.name} at about {significant(one.passes_at / 1e9, 2)} GB"
        for one in found
        if one.passes_at is not None
    ]
    bound = [one.name for one in found if one.is_bound]
    unsound = [f"{one.name} on {', '.join(one.unsound)}" for one in found if one.unsound]
    told = (
        ("Passes 1, in weights", passing),
        ("Overhead-bound up to the largest model here, so that beyond it nothing is known", bound),
        ("Not valid", unsound),
    )
    return [f"{begin}: {'; '.join(names)}." for begin, names in told if names]


def _finding(found: Sequence[OverSizes], models: Sequence[str]) -> str:
    """How many there are of each."""
    passing = sum(one.passes_at is not None for one in found)
    bound, unsound = sum(one.is_bound for one in found), sum(bool(one.unsound) for one in found)
    rest = f"; {bound} overhead-bound up to {models[-1]}" * bool(bound)
    rest += f"; {unsound} not valid on some of them" * bool(unsound)
    verb = "passes" if passing == 1 else "pass"
    which = f"{passing or 'None'} of {counted(len(found), 'speed-up')} {verb}"
    return f"{which} 1 from {models[0]} to {models[-1]}{rest}."


def over_sizes(found: Sequence[Sized]) -> list[OverSizes]:
    """For each variant and load, on each machine, that has a workload at several sizes."""
    groups: dict[tuple[int, str, str], list[Sized]] = {}
    for own in found:
        key = own.cell.variant.index, own.cell.load, own.cell.apart
        groups.setdefault(key, []).append(own)
    return [one for same in groups.values() if (one := _over_sizes(same)) is not None]


def _over_sizes(same: Sequence[Sized]) -> OverSizes | None:
    by_size: dict[int, list[Sized]] = {}
    for own in same:
        by_size.setdefault(own.size_bytes, []).append(own)
    tasks = set.intersection(*({own.task for own in found} for found in by_size.values()))
    if len(by_size) < 2 or not tasks:
        return None
    by_size = {s: [o for o in by_size[s] if o.task in tasks] for s in sorted(by_size)}
    means = [(s, _mean(o.cell.value("speedup") or 0.0 for o in by_size[s])) for s in by_size]
    unsound = [own[0].cell.model for own in by_size.values() if not all(map(_holds, own))]
    last, cell = by_size[max(by_size)], same[0].cell
    over = sorted(tasks)[0] if len(tasks) == 1 else f"over {len(tasks)} workloads"
    return OverSizes(
        ", ".join(filter(None, (cell.variant.label, cell.load, over, cell.apart))),
        None if unsound else crossing(means),
        unsound,
        all(map(_holds, last)) and any(own.bound for own in last),
    )


def _holds(own: Sized) -> bool:
    return own.cell.holds("speedup")


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
