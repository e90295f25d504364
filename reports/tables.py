"""Tables: a `Column` says what stands under a heading, and `build` makes a table of columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from reports.cells import Cell
from reports.numbers import interval, ratio, significant
from reports.variants import Variant
from reports.words.findings import named
from results import registry

QUALITY = {metric.name: metric.label for metric in registry.scores()}
"""Task scores that may stand in the quality column, with the name shown beside the number."""

Row = TypeVar("Row")
PLACE = "place"
"""Class of the columns that say where a row is from."""
_LONG = 8
"""Rows from which on a table may not fit its box."""


def _nothing(_: object) -> str:
    return ""


class Group(NamedTuple):
    """A heading over several columns, which name the same group."""

    title: str
    unit: str = ""
    help: str = ""


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A heading, and what stands below it in a row."""

    title: str
    value: Callable[[Row], float | str | None]
    """None where there is none: a dash is shown."""
    form: Callable[[float], str] = significant
    """How a number is shown; words are shown as they are."""
    unit: str = ""
    help: str = ""
    group: Group | None = None
    css: str = "num"
    """Class of the heading and of what is below; "" for words."""
    why: Callable[[Row], str] | str = "nothing was counted"
    """Why there is no value."""
    sort: Callable[[Row], str] | None = None
    """What to sort by, where it is not the value."""
    small: Callable[[Row], str] = _nothing
    """What stands beside the value in small print."""
    marks: Callable[[Row], str] = _nothing
    """Further classes: "struck", "best"."""

    def cell(self, row: Row, css: str) -> BodyCell:
        """What stands in `row`; `css` is the class in the place of the column's own."""
        css = " ".join(filter(None, (css, self.marks(row))))
        value = self.value(row)
        if value is None:
            return BodyCell(
                css=css, undefined=self.why if isinstance(self.why, str) else self.why(row)
            )
        text, key = (value, value) if isinstance(value, str) else (self.form(value), repr(value))
        return BodyCell(text, self.sort(row) if self.sort else key, css, self.small(row))


class HeaderCell(NamedTuple):
    """A header cell. `column` is the place in the body that sorting by it reads."""

    title: str
    unit: str = ""
    css: str = ""
    help: str = ""
    span: int = 1
    rows: int = 1
    column: int | None = None


class BodyCell(NamedTuple):
    """A body cell: what it shows, what it sorts by, and why it shows nothing."""

    text: str = ""
    sort: str = ""
    css: str = "num"
    small: str = ""
    undefined: str = ""


class BodyRow(NamedTuple):
    """What a row is of, which the page's filters look at, and its cells once it is built."""

    variant: Variant
    workload: str | None
    """None where the row is of several."""
    load: str
    """Empty where the row is of several."""
    validity: str = ""
    """Empty where the row stays whatever the filter for validity is."""
    group: object = None
    """Rows of the same stand together under a line."""
    css: str = ""
    cells: tuple[BodyCell, ...] = ()
    condition: str = ""
    """The load, and what else tells rows of a workload apart; without it the load."""
    number: int = 1
    """Among rows that are told apart by nothing else: the reasons against a cell."""

    @property
    def where(self) -> str:
        """What the columns say that a narrow page leaves out."""
        told = [cell for cell in self.cells if cell.css == PLACE]
        return ", ".join(f"{c.text} ({c.small})" if c.small else c.text for c in told)

    @property
    def place(self) -> str:
        """Its name in addresses, after that of its table."""
        parts = (self.variant.id, self.workload or "", self.condition or self.load or "")
        again = (str(self.number),) if self.number > 1 else ()
        return ".".join((*parts, *again)).replace(" ", "_")


class Table(NamedTuple):
    """Two header lines and the body."""

    groups: tuple[HeaderCell, ...]
    subheads: tuple[HeaderCell, ...]
    rows: tuple[BodyRow, ...]

    @property
    def is_long(self) -> bool:
        """Whether rows may be out of sight."""
        return len(self.rows) > _LONG


def scope(cell: Cell) -> BodyRow:
    """A row of one cell, grouped by workload, load and settings."""
    validity = "valid" if cell.valid else "not valid" if cell.is_measured else "failed"
    group = cell.workload, cell.load, cell.apart
    return bare_scope(cell)._replace(validity=validity, group=group)


def judged_scope(cell: Cell, metric: str = "output_tok_per_s") -> BodyRow:
    """`scope`, set back where the metric does not hold."""
    return scope(cell)._replace(css="invalid" * (not cell.holds(metric)))


def bare_scope(cell: Cell) -> BodyRow:
    """A row that stands alone, and that the filter for validity leaves as it is."""
    return BodyRow(cell.variant, cell.workload, cell.load, condition=named(cell, cell.load))


def build(
    columns: Sequence[Column[Row]], rows: Iterable[Row], of: Callable[[Row], BodyRow]
) -> Table:
    """The table of these rows with the backend in front; rows of a group follow each other."""
    classes = [
        f"{column.css} begin" if column.group and column.group is not before else column.css
        for column, before in zip(columns, (None, *(c.group for c in columns)), strict=False)
    ]
    body, group = list[BodyRow](), None
    seen: Counter[str] = Counter()
    for row in rows:
        own = of(row)
        seen[own.place] += 1
        own = own._replace(number=seen[own.place])
        css = " ".join(filter(None, ("first-of-group" * (own.group != group), own.css)))
        group = own.group
        cells = tuple(column.cell(row, css) for column, css in zip(columns, classes, strict=True))
        body.append(own._replace(css=css, cells=cells))
    return Table(*_header(columns, classes), tuple(body))


def _header(
    columns: Sequence[Column[Row]], classes: Sequence[str]
) -> tuple[tuple[HeaderCell, ...], tuple[HeaderCell, ...]]:
    lines = 2 if any(column.group for column in columns) else 1
    heads = [HeaderCell("Backend", rows=lines, column=0)]
    subheads: list[HeaderCell] = []
    before: Group | None = None
    for place, (column, css) in enumerate(zip(columns, classes, strict=True), start=1):
        group, rows = column.group, 1 if column.group else lines
        head = HeaderCell(column.title, column.unit, css, column.help, rows=rows, column=place)
        (subheads if group else heads).append(head)
        if group and group is not before:
            span = sum(other.group is group for other in columns)
            heads.append(HeaderCell(*group[:2], "group begin", group.help, span))
        before = group
    return tuple(heads), tuple(subheads)


def places(cell: Callable[[Row], Cell]) -> tuple[Column[Row], Column[Row]]:
    """The columns for the workload, with the settings where the run has several, and the load of a
    row of one cell; on a narrow page they stand below the backend."""
    return (
        Column("Workload", lambda row: named(cell(row), cell(row).task), css=PLACE),
        Column(
            "Load", lambda row: cell(row).load, css=PLACE, sort=lambda row: str(cell(row).order)
        ),
    )


WORKLOAD, LOAD = places(lambda cell: cell)


def bounds(cell: Cell, metric: str, form: Callable[[float], str] = ratio) -> str:
    """The interval of a metric as it stands beside the number; empty without one."""
    low, high = cell.low(metric), cell.high(metric)
    return interval(low, high, form) if low is not None and high is not None else ""
