"""Variants against workloads: speed-up over plain decoding and same answers in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean, geometric_mean
from typing import Any

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.numbers import counted, percent, ratio
from reports.sections import Section
from reports.tables import BodyRow, Column, Group, Table, bounds, build
from reports.text import clipped, visible
from reports.variants import plain
from reports.words.findings import place
from reports.words.techniques import predicts_early
from results.compare.pairing import NATIVE

SPEED, SAME = "speedup_native", "consistency_native"
Row = dict[str, Cell]
"""The cells of one variant under one load (and on one model), by workload."""
_EFFECTIVE = {"exit_layers": "Exits", "gamma": "γ", "heads": "Heads"}
"""Options as they took effect that stand beside each variant."""
_NOTE = (
    f"Speed-up over {NATIVE} and the share of its answers, by variant and workload (the shape "
    "of the AdaDecode paper's table 3). Struck through: not valid. Bold: the fastest valid one of "
    "a column"
)
_TEXTS = " that promises the same text. †: lossy, it does not promise that."
_NO_TEXTS = ". Decisions were replayed: that says nothing of the text."


def section(seen: Overview, _: Samples) -> Section | None:
    """The table of early predictions; None unless several variants can be compared."""
    cells = [c for c in seen.cells if predicts_early(c) and c.value(SPEED) is not None]
    if len({cell.variant.index for cell in cells}) < 2:
        return None
    replays = all(cell.variant.is_replay for cell in cells)
    note = _NOTE + (_NO_TEXTS if replays else _TEXTS)
    return Section("ablations", "Ablations", note, table=table(cells), finding=_finding(cells))


def _finding(cells: Sequence[Cell]) -> str:
    own, best = _judged(cells), _best(cells)
    replays = own[0].variant.is_replay
    if best is not None:
        which = "with replayed decisions" if replays else "of those that promise the same text"
        return (
            f"The fastest {which}: {ratio(best.value(SPEED) or 0.0)}× {NATIVE}'s decode speed, "
            f"{place(best)}."
        )
    promising = [cell for cell in own if not cell.variant.lossy]
    if not promising:
        return "No cell promises the same text."
    which = "with replayed decisions" if replays else "with the same text promised"
    return f"None of {counted(len(promising), 'cell')} {which} is valid."


def table(cells: Sequence[Cell]) -> Table:
    """A row per variant and load, two columns per workload, and their means where there are
    several workloads. `cells` are measured ones with a speed-up over plain decoding."""
    grouped: dict[tuple[str, int], Row] = {}
    for cell in sorted(cells, key=lambda c: (c.order, c.variant.index)):
        grouped.setdefault((cell.condition, cell.variant.index), {})[cell.workload] = cell
    return build(list(_columns(cells, list(grouped.values()))), grouped.values(), _scope)


def _scope(row: Row) -> BodyRow:
    first = _first(row)
    validity = "valid" if all(cell.valid for cell in row.values()) else "not valid"
    return BodyRow(
        first.variant,
        None,
        first.load,
        validity,
        group=first.condition,
        condition=first.condition,
    )


def _first(row: Row) -> Cell:
    return next(iter(row.values()))


def _columns(cells: Sequence[Cell], rows: Sequence[Row]) -> Iterator[Column[Row]]:
    if len({cell.condition for cell in cells}) > 1:
        yield Column(
            "Load",
            lambda row: _first(row).condition,
            css="",
            sort=lambda row: str(_first(row).order),
        )
    for name, title in _EFFECTIVE.items():
        why = "the backend did not say"
        yield Column(title, partial(_effective, name), css="", why=why)
    workloads = list(dict.fromkeys(cell.workload for cell in cells))
    for workload in workloads:
        scopes = [[c for c in cells if (c.workload, c.load) == (workload, load)]
                  for load in dict.fromkeys(cell.load for cell in cells)]  # fmt: skip
        best = {cell for scope in scopes if (cell := _best(scope))}
        yield from _compared(workload, best)
    if len(workloads) > 1:
        yield from _means(rows)


def _effective(name: str, row: Row) -> str | None:
    """The option as it took effect; it may have been chosen workload by workload."""
    values = dict.fromkeys(_words(cell.effective.get(name)) for cell in row.values())
    return visible(clipped(" or ".join(filter(None, values)), 40)) or None


def _words(value: Any) -> str:
    if isinstance(value, list | tuple):
        distinct = list(dict.fromkeys(plain(item) for item in value))
        # one threshold for all layers is told once
        whole = len(distinct) == 1 and all(isinstance(item, float) for item in value)
        return distinct[0] if whole else " ".join(plain(item) for item in value)
    return "" if value is None else plain(value)


def _compared(workload: str, best: set[Cell]) -> Iterator[Column[Row]]:
    """Speed-up and same answers on one workload."""

    def value(metric: str, row: Row) -> float | None:
        return row[workload].value(metric) if workload in row else None

    def marks(metric: str, row: Row) -> list[str]:
        return ["struck"] * (workload in row and not row[workload].holds(metric))

    group = Group(workload)
    yield Column(
        "×", partial(value, SPEED), ratio, group=group, why="not measured",
        help=f"decode speed against {NATIVE}, 95% interval",
        small=lambda row: bounds(row[workload], SPEED),
        marks=lambda row: " ".join(["best"] * (row.get(workload) in best) + marks(SPEED, row)),
    )  # fmt: skip
    no_pair = f"no request in common with {NATIVE}"
    yield Column(
        "same %", partial(value, SAME), percent, group=group,
        help=f"requests with {NATIVE}'s token ids",
        why=lambda row: no_pair if workload in row else "not measured",
        marks=lambda row: " ".join(marks(SAME, row)),
    )  # fmt: skip


def _means(rows: Sequence[Row]) -> Iterator[Column[Row]]:
    """Geometric mean of the speed-ups and mean share of the same answers, over the workloads on
    which all rows of a load are valid, so that rows can be compared; a row that is valid on none of
    them has no mean."""
    groups: dict[str, list[set[str]]] = {}
    for row in rows:
        sound = {name for name, cell in row.items() if cell.holds(SPEED) and cell.holds(SAME)}
        if sound:
            groups.setdefault(_first(row).condition, []).append(sound)
    common = {condition: set.intersection(*sets) for condition, sets in groups.items()}

    def used(row: Row) -> list[Cell]:
        names = common.get(_first(row).condition, set())
        found = [cell for name, cell in row.items() if name in names]
        return found if all(cell.holds(SPEED) for cell in found) else []

    def mean(metric: str, average: Callable[[Sequence[float]], float], row: Row) -> float | None:
        values = [value for cell in used(row) if (value := cell.value(metric)) is not None]
        return average(values) if values else None

    def over(row: Row) -> str:
        count = len(used(row))
        return "" if count == len(row) else f"of {counted(count, 'workload')} valid in all rows"

    group, why = Group("mean"), "no workload is valid in all rows of this load"
    yield Column("×", partial(mean, SPEED, geometric_mean), ratio, group=group, why=why, small=over)
    yield Column("same %", partial(mean, SAME, fmean), percent, group=group, why=why)


def _judged(cells: Sequence[Cell]) -> Sequence[Cell]:
    """The real ones where there are any: replays are not ranked beside them."""
    return [cell for cell in cells if not cell.variant.is_replay] or cells


def _best(cells: Sequence[Cell]) -> Cell | None:
    """The fastest valid cell whose backend promises plain decoding's text; of replays, which have
    no text, the fastest valid one."""
    promising = [cell for cell in _judged(cells) if cell.holds(SPEED) and not cell.variant.lossy]
    return max(promising, key=lambda cell: cell.value(SPEED) or 0.0, default=None)
