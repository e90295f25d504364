"""What becomes of each speed-up as the model grows: the answer to "would it hold on mine?"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.figures import sizes as figures
from reports.figures.sizes import SizedSpeedup
from reports.numbers import counted, ratio, significant
from reports.panels import Panel, PanelGroup
from reports.sections import Section
from reports.tables import BodyRow, Column, Group, bounds, build, judged_scope, places
from reports.words.break_even import plain_beside
from reports.words.doubts.overhead import CHANGES, is_overhead_bound, shrinking
from reports.words.scale import read_bytes
from reports.words.speed import PassingOne, passing_one, speed
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

    @property
    def plain_bound(self) -> bool:
        """Whether either side of `over_plain` is overhead-bound."""
        plain = self.plain if self.over_plain else None
        return plain is not None and any(map(is_overhead_bound, (self.cell, plain)))

    def point(self) -> SizedSpeedup | None:
        """For the figure; None without a speed-up."""
        speedup = self.cell.value("speedup")
        if not speedup:
            return None
        holds = self.cell.holds("speedup")
        return SizedSpeedup(self.cell, self.size_bytes, speedup, holds, self.bound)


def section(seen: Overview, _: Samples) -> Section | None:
    """A panel per load and workload, a row per cell; None unless models of several sizes ran."""
    every = sized(seen)
    found = [own for own in every if own.cell.value("speedup") is not None]
    if len({own.size_bytes for own in found}) < 2:
        return None
    table = build(COLUMNS, found, _row)
    groups = [PanelGroup(list(_panels(found)))]
    told = over_sizes(found, max(own.size_bytes for own in every))
    by_bytes = sorted(every, key=lambda own: own.size_bytes)
    models = list(dict.fromkeys(own.cell.model for own in by_bytes))
    return Section("sizes", "Against the size of the model", _NOTE, groups, table,
                   sentences(told), "Model size", _finding(told, models) if told else "",
                   is_open=not told)  # fmt: skip


def sized(seen: Overview) -> list[Sized]:
    """Every measured cell but the reference's whose model's bytes are known, by size within
    workload, load, variant and machine."""
    found, bound = [], shrinking(seen.cells)
    for cell in seen.cells:
        size = read_bytes(cell.measured)
        if not size or not cell.is_measured or cell.variant.is_reference:
            continue
        found.append(Sized(cell, size, plain_beside(seen, cell), cell in bound))
    order = {text: place for place, text in enumerate(dict.fromkeys(own.task for own in found))}
    found.sort(
        key=lambda o: (
            order[o.task], o.cell.order, o.cell.variant.index, o.cell.apart, o.size_bytes
        )
    )  # fmt: skip
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
    at every size at which it was measured."""

    name: str
    passing: PassingOne | None
    """None where it does not pass 1, or is not valid somewhere."""
    unsound: Sequence[str]
    """Models on which it is not valid."""
    is_bound: bool
    """Whether it is overhead-bound on the largest model of all, where it is valid there."""
    up_to: str
    """The largest model with a speed-up, where it has none on the largest of all."""


def sentences(found: Sequence[OverSizes]) -> list[str]:
    """Which way speed-ups pass 1, and of which nothing follows for larger models; the table has the
    rest."""
    passing = [(one.name, one.passing) for one in found if one.passing is not None]
    falls, exceeds = (
        [f"{name} {one.above}" for name, one in passing if one.falls is way]
        for way in (True, False)
    )
    unclear = [name for name, one in passing if one.falls is None]
    bound = [one.name for one in found if one.is_bound]
    short = [f"{one.name} (up to {one.up_to})" for one in found if one.up_to]
    unsound = [f"{one.name} on {', '.join(one.unsound)}" for one in found if one.unsound]
    told = (
        ("Falls below 1, in weights", falls),
        ("Exceeds 1, in weights", exceeds),
        ("Whether it passes 1 cannot be told, for intervals hold 1 or are missing", unclear),
        ("Overhead-bound up to the largest model here, so that beyond it nothing is known", bound),
        ("Without a speed-up on the largest model here", short),
        ("Not valid", unsound),
    )
    return [f"{begin}: {'; '.join(names)}." for begin, names in told if names]


def _finding(found: Sequence[OverSizes], models: Sequence[str]) -> str:
    """How many there are of each."""
    ends = f"from {models[0]} to {models[-1]}"
    whole = [one for one in found if not one.up_to]
    ways = [one.passing.falls for one in whole if one.passing is not None]
    falls, rises, unclear = (ways.count(way) for way in (True, False, None))
    bound, unsound = sum(one.is_bound for one in found), sum(bool(one.unsound) for one in found)
    rest = f"; of {unclear} it cannot be told" * bool(unclear)
    rest += f"; {bound} overhead-bound up to {models[-1]}" * bool(bound)
    rest += f"; {len(found) - len(whole)} without one on {models[-1]}" * (len(whole) < len(found))
    rest += f"; {unsound} not valid on some of them" * bool(unsound)
    if not whole:
        return f"No speed-up was measured {ends}{rest}."
    passing = [f"{falls} fall{'s' * (falls == 1)} below 1"] * bool(falls)
    passing += [f"{rises} come{'s' * (rises == 1)} to exceed 1"] * bool(rises)
    told = " and ".join(passing) or "none is shown to pass 1"
    return f"Of {counted(len(whole), 'speed-up')} {ends} {told} as the model grows{rest}."


def over_sizes(found: Sequence[Sized], largest: int) -> list[OverSizes]:
    """For each variant and load, on each machine, that has a workload at several sizes, or none at
    the `largest` of all."""
    groups: dict[tuple[int, str, str], list[Sized]] = {}
    for own in found:
        key = own.cell.variant.index, own.cell.load, own.cell.apart
        groups.setdefault(key, []).append(own)
    return [one for same in groups.values() if (one := _over_sizes(same, largest)) is not None]


def _over_sizes(same: Sequence[Sized], largest: int) -> OverSizes | None:
    by_size: dict[int, list[Sized]] = {}
    for own in sorted(same, key=lambda own: own.size_bytes):
        by_size.setdefault(own.size_bytes, []).append(own)
    tasks = set.intersection(*({own.task for own in found} for found in by_size.values()))
    up_to = "" if largest in by_size else by_size[max(by_size)][0].cell.model
    if (len(by_size) < 2 or not tasks) and not up_to:
        return None
    by_size = {size: [o for o in own if o.task in tasks] for size, own in by_size.items()}
    pooled = ((s, speed([o.cell for o in own])) for s, own in by_size.items())
    unsound = [own[0].cell.model for own in by_size.values() if not all(map(_holds, own))]
    last, cell = by_size[max(by_size)], same[0].cell
    over = sorted(tasks)[0] if len(tasks) == 1 else f"over {len(tasks)} workloads" * bool(tasks)
    return OverSizes(
        ", ".join(filter(None, (cell.variant.label, cell.load, over, cell.apart))),
        None if unsound else passing_one([(s, one) for s, one in pooled if one is not None]),
        unsound,
        not up_to and all(map(_holds, last)) and any(own.bound for own in last),
        up_to,
    )


def _holds(own: Sized) -> bool:
    return own.cell.holds("speedup")


def _panels(found: Sequence[Sized]) -> Iterator[Panel]:
    for task, load in dict.fromkeys((own.task, own.cell.load) for own in found):
        lines: dict[tuple[int, str], list[SizedSpeedup]] = {}
        for own in found:
            if (own.task, own.cell.load) == (task, load) and (point := own.point()):
                lines.setdefault((own.cell.variant.index, own.cell.apart), []).append(point)
        paint = partial(figures.against_size, lines=list(lines.values()))
        title = f"Speed-up against the size of the model: {task}, {load}"
        yield Panel(paint, title, f"{task}, {load}", load=load)


def _row(own: Sized) -> BodyRow:
    return judged_scope(own.cell, "speedup")._replace(group=(own.task, own.cell.load))


def _changes(own: Sized) -> str:
    """Which of its ratios change as models grow."""
    if not own.over_plain or own.plain_bound == own.bound:
        return CHANGES * own.bound
    return f"{'over the reference' if own.bound else 'over plain'} {CHANGES}"


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
    Column("", _changes, css=""),
)  # fmt: skip
