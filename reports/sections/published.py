"""A paper's table beside what was measured here, and whether methods have the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import NamedTuple

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.numbers import counted, ratio, significant
from reports.sections import Section
from reports.tables import BodyRow, Column, Group, bounds, build, places, scope
from reports.text import clipped, visible
from results import registry

_LONG = 400


class Repeated(NamedTuple):
    """A cell, and what the paper has for it by setting."""

    cell: Cell
    published: Sequence[float | None]


def section(seen: Overview, _: Samples) -> Section | None:
    """A row per cell that the paper has a number for; None without one."""
    table = seen.published
    found = list(repeated(seen)) if table else []
    if not table or not found:
        return None
    metric, source = str(table["metric"]), visible(clipped(str(table["source"]), 120))
    settings = [visible(clipped(str(setting), 60)) for setting in table["settings"]]
    note = (
        f"{_label(metric)} as published ({source}) and as measured here. There: "
        f"{visible(clipped(str(table['note']), _LONG))} Struck through: not valid."
    )
    words = list(filter(None, (_order(n, name, found, metric) for n, name in enumerate(settings))))
    columns = (*places(lambda one: one.cell), *_columns(settings, metric))
    return Section(
        "published",
        "Beside the paper",
        note,
        table=build(columns, found, _row),
        words=words,
        finding=words[0] if words else f"{counted(len(found), 'cell')} beside published numbers.",
    )


def repeated(seen: Overview) -> Iterator[Repeated]:
    """The measured cells of each row of the paper's table, in the order of the table."""
    for row in (seen.published or {}).get("rows", ()):
        asked = (row.get("options") or {}).items()
        for cell in seen.cells:
            values = row["values"].get(cell.metrics["workload"])
            own = cell.variant.options
            matches = all(key in own and own[key] == value for key, value in asked)
            if cell.variant.backend == row["backend"] and matches and values and cell.is_measured:
                yield Repeated(cell, values)


def _row(one: Repeated) -> BodyRow:
    return scope(one.cell)


def _label(metric: str) -> str:
    found = [m for m in registry.METRICS if metric in m.keys]
    return visible(found[0].label if found and found[0].label else metric)


def _columns(settings: Sequence[str], metric: str) -> Iterator[Column[Repeated]]:
    form: Callable[[float], str] = ratio if metric.startswith("speedup") else significant
    paper = Group("Published")
    for number, setting in enumerate(settings):
        yield Column(
            setting, partial(_value, number), form, group=paper, why="the paper has no number"
        )
    yield Column(
        "here", lambda one: one.cell.value(metric), form, why="not measured",
        help=f"{_label(metric)} of this run, with its 95% interval",
        small=lambda one: bounds(one.cell, metric, form),
        marks=lambda one: "struck" * (not one.cell.holds(metric)),
    )  # fmt: skip


def _value(number: int, one: Repeated) -> float | None:
    return one.published[number]


def _order(number: int, setting: str, found: Sequence[Repeated], metric: str) -> str:
    """In how many pairs of methods the faster one is the same; empty without a pair."""
    same = pairs = 0
    for one, other in combinations(found, 2):
        alike = one.cell.place == other.cell.place
        there = _difference(one.published[number], other.published[number])
        here = _difference(_held(one, metric), _held(other, metric))
        if alike and there and here:
            pairs += 1
            same += (there > 0) == (here > 0)
    if not pairs:
        return ""
    return (
        f"The order of two methods is the one published for {setting} in {same} of {pairs} pairs."
    )


def _held(one: Repeated, metric: str) -> float | None:
    return one.cell.value(metric) if one.cell.holds(metric) else None


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other
