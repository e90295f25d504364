"""The builder of tables: headings over columns, sort keys, and why a cell is empty."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from reports.numbers import percent
from reports.tables import PLACE, BodyCell, BodyRow, Column, Group, Table, build
from reports.variants import NamedOptions, variants

(VLLM,) = variants([NamedOptions("vllm", {}, "official code", True)])


class LoadRow(NamedTuple):
    load: str
    share: float | None
    speed: float | None = 2.0


SPEED = Group("Speed", "tokens/s", "of the whole")
COLUMNS: tuple[Column[LoadRow], ...] = (
    Column("Load", lambda row: row.load, css="", sort=lambda row: row.load[-1]),
    Column(
        "Share",
        lambda row: row.share,
        percent,
        why=lambda row: f"{row.load} has none",
        small=lambda row: "beside",
        marks=lambda row: "struck" * (row.load == "c=8"),
    ),
    Column("mean", lambda row: row.speed, group=SPEED),
    Column("best", lambda row: row.speed, group=SPEED, why="not tried", help="of all"),
)


@pytest.fixture
def table() -> Table:
    rows = [LoadRow("c=1", 0.5), LoadRow("c=1", None), LoadRow("c=8", 0.12345, None)]
    return build(COLUMNS, rows, lambda row: BodyRow(VLLM, None, row.load, group=row.load))


def test_columns_of_a_group_share_a_heading(table: Table) -> None:
    heads = [(head.title, head.span, head.rows, head.column) for head in table.groups]
    assert heads == [
        ("Backend", 1, 2, 0), ("Load", 1, 2, 1), ("Share", 1, 2, 2), ("Speed", 2, 1, None),
    ]  # fmt: skip
    assert (table.groups[-1].unit, table.groups[-1].help) == ("tokens/s", "of the whole")
    heads = [(head.title, head.span, head.rows, head.column) for head in table.subheads]
    assert heads == [("mean", 1, 1, 3), ("best", 1, 1, 4)]
    assert [head.css for head in table.subheads] == ["num begin", "num"]
    assert [cell.css for cell in table.rows[0].cells] == ["", "num", "num begin", "num"]


def test_without_groups_there_is_one_line_of_headings() -> None:
    table = build(COLUMNS[:2], [], lambda row: BodyRow(VLLM, None, row.load))
    assert [head.rows for head in table.groups] == [1, 1, 1]
    assert (table.subheads, table.rows) == ((), ())


def test_a_cell_sorts_by_the_whole_value_and_says_why_it_is_empty(table: Table) -> None:
    first, second, third = table.rows
    assert first.cells[0] == BodyCell("c=1", "1", "")
    assert third.cells[1] == BodyCell("12.3", "0.12345", "num struck", "beside")
    assert second.cells[1] == BodyCell(css="num", undefined="c=1 has none")
    assert third.cells[2] == BodyCell(css="num begin", undefined="nothing was counted")
    assert third.cells[3] == BodyCell(css="num", undefined="not tried")


def test_a_line_stands_above_each_group_of_rows(table: Table) -> None:
    assert [row.css for row in table.rows] == ["first-of-group", "", "first-of-group"]
    alone = build(
        COLUMNS, [LoadRow("c=1", 0.5)], lambda row: BodyRow(VLLM, None, "", css="invalid")
    )
    assert [row.css for row in alone.rows] == ["invalid"]


def test_a_row_says_where_it_is_from_in_words_of_its_own() -> None:
    """For a page too narrow for the columns."""
    place: Column[LoadRow] = Column("Load", lambda r: r.load, css=PLACE, small=lambda _: "13/s")
    rows = [LoadRow("c=1", 0.5)] * 9

    def scope(row: LoadRow) -> BodyRow:
        return BodyRow(VLLM, None, row.load)

    whole = build((place, place, *COLUMNS), rows, scope)
    assert whole.rows[0].where == "c=1 (13/s), c=1 (13/s)"
    assert build(COLUMNS, rows, scope).rows[0].where == ""
    assert (whole.is_long, build(COLUMNS, rows[1:], scope).is_long) == (True, False)
