"""The iterator over load x workload: which panels there are, and where they stand."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reports.cells import Overview, overview
from reports.figures.axes import value_axis
from reports.panels import (
    Panel,
    Place,
    Size,
    beside,
    by_load,
    draw,
    drawing,
    folded,
    measured,
    panels,
)
from results import load

ONE, EIGHT = "closed c=1", "closed c=8"


@pytest.fixture(scope="module")
def seen(run_dir: Path) -> Overview:
    return overview(load(run_dir))


def paint(_: Any) -> None:
    pass


def named(place: Place) -> Iterator[Panel]:
    assert place.cells
    yield Panel(paint, f"cells{place.words}")


def test_a_panel_stands_for_each_load_and_workload(seen: Overview) -> None:
    found = panels(seen, named)
    assert [(one.load, one.workload) for one in found] == [
        (ONE, "cnn_dailymail"), (ONE, "gsm8k"), (EIGHT, "cnn_dailymail"), (EIGHT, "gsm8k"),
    ]  # fmt: skip
    assert found[1].title == "cells: gsm8k, closed c=1"
    assert {one.size for one in found} == {beside(seen)}


def test_a_panel_per_load_is_over_all_workloads_and_has_a_row_per_cell(seen: Overview) -> None:
    sizes = []

    def each(place: Place) -> Iterator[Panel]:
        assert place.workload is None
        assert {cell.load for cell in place.cells} == {place.load}
        sizes.append(len(place.cells))
        yield from named(place)

    found = panels(seen, each, per="load")
    assert sizes == [8, 8]
    assert [(one.title, one.caption) for one in found] == [
        (f"cells, {load}", load) for load in (ONE, EIGHT)
    ]
    fewer = panels(seen, named, [c for c in seen.cells if c.workload == "gsm8k"], per="load")
    assert [one.size and one.size.height for one in fewer] < [
        one.size and one.size.height for one in found
    ]


def test_a_panel_per_workload_is_over_all_loads(seen: Overview) -> None:
    found = panels(seen, named, per="workload")
    assert [(one.load, one.caption) for one in found] == [(None, "cnn_dailymail"), (None, "gsm8k")]


def test_places_without_cells_have_no_panel(seen: Overview) -> None:
    own = [cell for cell in seen.cells if (cell.workload, cell.load) == ("gsm8k", EIGHT)]
    assert [(one.load, one.workload) for one in panels(seen, named, own)] == [(EIGHT, "gsm8k")]
    assert panels(seen, named, []) == []
    failed = [dataclasses.replace(cell, failed=cell.trials) for cell in seen.cells]
    assert measured(dataclasses.replace(seen, cells=(*failed, seen.cells[0]))) == [seen.cells[0]]


def test_what_a_panel_says_of_itself_stays(seen: Overview) -> None:
    def sized(place: Place) -> Iterator[Panel]:
        for name in ("one", "two"):
            yield Panel(paint, name, f"{name} of {place.workload}", Size(width=9))

    found = panels(seen, sized)
    assert [one.caption for one in found[:2]] == ["one of cnn_dailymail", "two of cnn_dailymail"]
    assert {one.size for one in found} == {Size(width=9)}


def test_a_fold_per_load_and_the_first_is_open(seen: Overview) -> None:
    found = panels(seen, named)
    groups = folded(found)
    assert [(one.title, one.load, one.open) for one in groups] == [
        (ONE, ONE, True), (EIGHT, EIGHT, False),
    ]  # fmt: skip
    assert [len(one.panels) for one in groups] == [2, 2]
    assert [load for load, _ in by_load(found)] == [ONE, EIGHT]
    assert folded([]) == []


def test_four_workloads_make_narrow_panels(seen: Overview) -> None:
    first = seen.cells[0]
    four = [dataclasses.replace(first, workload=name) for name in "abcd"]
    assert beside(dataclasses.replace(seen, cells=tuple(four))).width < beside(seen).width


def test_axes_that_are_logarithmic_say_so() -> None:
    def paint_scales(axes: Any) -> None:
        axes.plot([1, 100], [1, 2])
        value_axis(axes, "x", [1, 100])
        value_axis(axes, "y", [1, 2])
        axes.set_xlabel("tokens")
        axes.set_ylabel("seconds")

    with drawing():
        text = draw(Panel(paint_scales, "scales"), "x-")
    assert ">tokens, log scale</text>" in text
    assert ">seconds</text>" in text


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (20.101, 20.199, ["20.12", "20.14", "20.16", "20.18"]),
        (12_040, 12_160, ["12.05k", "12.075k", "12.1k", "12.125k", "12.15k"]),
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
    ],
)
def test_ticks_near_to_each_other_have_labels_of_their_own(
    low: float, high: float, labels: list[str]
) -> None:
    """Three of 20.1 were one label three times."""

    def paint_values(axes: Any) -> None:
        axes.plot([1, 2], [low, high])
        value_axis(axes, "y", [low, high], log_from=float("inf"))
        axes.set_xticks([])
        axes.set_ylim(low, high)

    with drawing():
        text = draw(Panel(paint_values, "near"), "x-")
    assert re.findall(r">([\d.]+k?)</text>", text) == labels
