"""Which way a speed-up passes 1 as the model grows, as far as intervals and sizes tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from harness.core.nouns import Measured, Model
from reports.cells import Cell, Overview, overview
from reports.collect import Samples
from reports.sections.speed import sizes
from reports.words.speed import Speed, passing_one
from results import load
from tests.support.results.report_runs import ENGINES, LOADS, MadeUpBackend, write_run

Told = tuple[int, float, str]
"""Size, speed-up and what its interval tells: ``>`` 1, ``<`` 1 or neither."""
NAMES = "0.1b, 1 layer", "0.1b, 2 layers", "0.1b, 4 layers"
MODELS = tuple(Model("0.1b", shape=True, layers=layers) for layers in (1, 2, 4))
SIZES = dict(zip(NAMES, (100, 200, 400), strict=True))


def pooled(value: float, told: str) -> Speed:
    low = 1.1 if told == ">" else value / 2
    high = 0.9 if told == "<" else value * 2
    return Speed(value, low, high, valid=True, bounded=True)


@pytest.mark.parametrize(
    ("means", "where", "falls"),
    [
        ([(100, 4.0, ">"), (400, 0.25, "<")], 200.0, True),
        ([(100, 0.5, "<"), (400, 2.0, ">")], 200.0, False),
        ([(100, 3.0, ">"), (400, 1.5, ">")], None, None),
        ([(100, 2.0, ">"), (200, 0.5, "<"), (400, 2.0, ">")], 200 * 2**0.5, False),
        ([(100, 2.0, ">")], None, None),
        ([], None, None),
        ([(100, 0.5, "?"), (400, 2.0, "?")], 200.0, None),
        ([(100, 0.5, "<"), (400, 2.0, "?")], 200.0, None),
        ([(100, 2.0, "?"), (400, 0.5, "<")], 200.0, None),
        ([(100, 3.0, ">"), (200, 2.0, "?"), (800, 0.5, "<")], 400.0, True),
        ([(100, 3.0, ">"), (200, 0.5, "?"), (800, 2.0, ">")], None, None),
        ([(100, 0.5, "<"), (400, 2.0, ">"), (800, 0.99, "?")], 200.0, False),
        ([(100, 2.0, ">"), (400, 0.5, "<"), (800, 2.0, "?"), (1600, 0.9, "?")], 200.0, True),
        ([(100, 2.0, "?"), (400, 0.5, "?"), (800, 0.9, "<"), (1600, 0.8, "<")], 200.0, None),
        ([(100, 2.0, ">"), (200, 0.5, "?"), (400, 2.0, ">"), (1600, 0.5, "?")], 800.0, None),
        ([(100, 3.0, ">"), (200, 0.9, "?"), (400, 2.0, "?"), (1600, 0.5, "<")], 800.0, True),
        ([(100, 2.0, ">"), (200, 1.0, "?"), (400, 0.5, "<")], 200.0, True),
    ],
)
def test_where_and_which_way_a_speed_up_passes_1(
    means: Sequence[Told], where: float | None, falls: bool | None
) -> None:
    found = passing_one([(size, pooled(value, told)) for size, value, told in means])
    assert (None if found is None else found.falls) is falls
    if found is None:
        assert where is None
    else:
        assert found.size_bytes == pytest.approx(where)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Overview:
    engines = (ENGINES[0], ENGINES[1], MadeUpBackend("adadecode", 0.004, {"gamma": 0.75}))
    folder = write_run(
        tmp_path_factory.mktemp("crossings"), engines=engines, workloads=["gsm8k"],
        loads=LOADS[:1], models=MODELS, repeats=3, requests=4,
    )  # fmt: skip
    return overview(load(folder))


def with_bytes(cell: Cell) -> Cell:
    read = {"layer": SIZES[cell.model] * 10**6, "layers": 1, "head": 0, "kv": 1}
    return dataclasses.replace(cell, measured=Measured(pass_bytes=read))


def section(
    run: Overview, own: Mapping[str, tuple[float, float, float]], missing: str = "", **told: Any
) -> tuple[list[str], str]:
    """Sentences and finding with these speed-ups of adadecode, by model; it is left out where it is
    `missing`. The other one is as fast as the reference everywhere."""

    def made(cell: Cell) -> Cell:
        numbers = (1.0, 1.0, 1.0)
        if cell.variant.backend == "adadecode":
            numbers = own[cell.model]
        ends = dict(zip(("speedup", "speedup_low", "speedup_high"), numbers, strict=True))
        if cell.variant.is_reference:
            ends = {}
        metrics = {**cell.metrics, **ends, **told}
        return dataclasses.replace(with_bytes(cell), metrics=metrics)

    cells = [c for c in run.cells if (c.variant.backend, c.model) != ("adadecode", missing)]
    seen = dataclasses.replace(run, cells=tuple(map(made, cells)))
    found = sizes.section(seen, Samples())
    assert found is not None
    return list(found.words), found.finding


def by_model(*values: tuple[float, float, float]) -> dict[str, tuple[float, float, float]]:
    return dict(zip(NAMES, values, strict=True))


NAME = "adadecode, closed c=1, gsm8k"
ALL = f"from {NAMES[0]} to {NAMES[2]}"


def test_a_method_that_comes_to_pay_is_told_from_one_that_ceases_to(run: Overview) -> None:
    down = by_model((2.5, 2.4, 2.6), (1.25, 1.2, 1.3), (0.62, 0.6, 0.64))
    words, finding = section(run, down)
    assert words == [f"Falls below 1, in weights: {NAME} above about 0.25 GB."]
    assert finding == f"Of 2 speed-ups {ALL} 1 falls below 1 as the model grows."
    up = by_model((0.62, 0.6, 0.64), (0.9, 0.8, 0.99), (1.25, 1.2, 1.3))
    words, finding = section(run, up)
    assert words == [f"Exceeds 1, in weights: {NAME} above about 0.25 GB."]
    assert finding == f"Of 2 speed-ups {ALL} 1 comes to exceed 1 as the model grows."


def test_points_whose_intervals_hold_1_do_not_pass_it(run: Overview) -> None:
    flat = by_model((0.997, 0.9, 1.1), (0.998, 0.9, 1.1), (1.004, 0.9, 1.1))
    words, finding = section(run, flat)
    assert words == [
        f"Whether it passes 1 cannot be told, for intervals hold 1 or are missing: {NAME}."
    ]
    assert finding.endswith(" none is shown to pass 1 as the model grows; of 1 it cannot be told.")


@pytest.mark.parametrize("up_to", NAMES[:2])
def test_who_has_nothing_on_the_largest_model_is_named(run: Overview, up_to: str) -> None:
    """It was counted as measured up to there, and told to be overhead-bound there."""
    down = by_model((2.5, 2.4, 2.6), (0.9, 0.8, 0.95), (0.62, 0.6, 0.64))
    bound = {"floor_share": 0.1, "overhead_share": 0.9}
    kept = run
    if up_to == NAMES[0]:
        some = [c for c in run.cells if (c.variant.backend, c.model) != ("adadecode", NAMES[1])]
        kept = dataclasses.replace(run, cells=tuple(some))
    words, finding = section(kept, down, missing=NAMES[2], **bound)
    assert f"Without a speed-up on the largest model here: {NAME} (up to {up_to})." in words
    (overhead,) = [text for text in words if text.startswith("Overhead-bound up to the largest")]
    assert "adadecode" not in overhead
    assert finding.startswith(f"Of 1 speed-up {ALL} none is shown to pass 1 as the model grows; ")
    assert "; 1 overhead-bound up to 0.1b, 4 layers; 1 without one on 0.1b, 4 layers" in finding
    assert any(text.startswith("Falls below 1") for text in words) == (up_to == NAMES[1])


def test_a_line_and_a_row_are_of_one_machine(run: Overview) -> None:
    here = list(map(with_bytes, run.cells))
    there = [dataclasses.replace(cell, apart="another machine", group="there") for cell in here]
    found = sizes.section(dataclasses.replace(run, cells=(*here, *there)), Samples())
    assert found is not None
    assert found.table is not None
    told = [row.cells[0].text for row in found.table.rows]
    assert ["another machine" in words for words in told] == [*[False] * 3, *[True] * 3] * 2
    (panel,) = (panel for group in found.groups for panel in group.panels)
    axes = Figure().subplots()
    panel.paint(axes)
    drawn = [line for line in axes.lines if line.get_linestyle() != "None"]
    assert sorted(np.size(line.get_xdata()) for line in drawn) == [2, *[len(SIZES)] * 4], (
        "beside the dashed one, for two methods on two machines"
    )
