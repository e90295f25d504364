"""The table of methods by size: what a speed-up is over, what is best, and what it has to bring."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.core.nouns import REPLAYED, Measured, Model
from reports.cells import Cell, Overview, overview
from reports.page import render
from reports.words.ranking.by_size import MethodRow, SizeTable, by_size
from results import load
from tests.support.results.report_runs import ENGINES, LOADS, PLAIN, MadeUpBackend, write_run

MODELS = tuple(Model("0.1b", shape=True, layers=layers) for layers in (1, 2, 4))
ADADECODE = MadeUpBackend("adadecode", 0.004, {"gamma": 0.75})
"""2.5 times as fast as the reference on one layer, and slower with each more (`write_run`)."""
READ = {"layers": 3, "layer": 10**6, "head": 10**6, "kv": 1}
OWN = ("adadecode", PLAIN.name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    engines = (ENGINES[0], ADADECODE, ENGINES[1], PLAIN)
    small: dict[str, Any] = {"workloads": ["gsm8k"], "loads": LOADS[:2], "repeats": 2}
    folder = tmp_path_factory.mktemp("sizes")
    return write_run(folder, engines=engines, models=MODELS, requests=12, **small)


@pytest.fixture(scope="module")
def run(folder: Path) -> Overview:
    """With steps and decisions, as engines tell them."""
    told: dict[str, dict[str, Any]] = {
        "adadecode": {"tokens_per_step": 3.0, "acceptance_rate": 0.9, "drafts_per_step": 4.0},
        "vllm-early-exit": {"early_exit_rate": 0.8, "step_s": 0.004},
        "vllm": {"step_s": 0.01, "overhead_share": 0.0},
    }

    def known(cell: Cell) -> Cell:
        name = cell.variant.backend
        return dataclasses.replace(
            cell,
            measured=Measured(pass_bytes=READ),
            effective={"kernels": "native"} if name in OWN else {},
            metrics={**cell.metrics, **told.get(name, {})},
        )

    return changed(overview(load(folder)), known)


def changed(seen: Overview, change: Callable[[Cell], Cell]) -> Overview:
    return dataclasses.replace(seen, cells=tuple(map(change, seen.cells)))


def rows_of(tables: list[SizeTable], load: int = 0) -> dict[str, MethodRow]:
    (table,) = tables
    loads = list(dict.fromkeys(row.under.load for row in table.rows))
    return {row.variant.backend: row for row in table.rows if row.under.load == loads[load]}


def test_every_method_has_a_row_for_each_load_and_a_column_for_each_size(run: Overview) -> None:
    tables = by_size(run)
    (table,) = tables
    assert list(table.models) == ["0.1b, 1 layer", "0.1b, 2 layers", "0.1b, 4 layers"]
    for at in range(2):
        rows = rows_of(tables, at)
        assert list(rows) == ["adadecode", PLAIN.name, "vllm-early-exit"], "an engine's together"
        assert {len(row.gains) for row in rows.values()} == {3}
    rows = rows_of(tables)
    assert [rows[name].over for name in rows] == [PLAIN.name, "vllm", "vllm"]
    assert [rows[name].engine for name in rows] == [PLAIN.name, PLAIN.name, "vllm"]
    alone = tuple(c for c in run.cells if c.variant.backend != PLAIN.name)
    none = {"speedup_native": None, "speedup_native_low": None, "speedup_native_high": None}
    alone = tuple(dataclasses.replace(c, metrics={**c.metrics, **none}) for c in alone)
    rows = rows_of(by_size(dataclasses.replace(run, cells=alone)))
    assert [(row.over, row.engine) for row in rows.values()] == [
        ("vllm", PLAIN.name),
        ("vllm",) * 2,
    ]
    assert not any(any(row.best) for row in rows.values()), "engines are not ranked"


def test_methods_of_another_engine_are_set_beside_the_reference_too(run: Overview) -> None:
    """Over plain decoding on its own engine a method says what it brings, over the reference
    whether to deploy it."""
    last = MODELS[-1].label()
    for seen, reference in ((run, "vllm"), (without_native(run), "")):
        (found,) = by_size(seen)
        assert found.reference == reference
        for made, row in zip(found.table.rows, found.rows, strict=True):
            cells = [c for c in seen.cells if c.variant.index == row.variant.index]
            (own,) = (c for c in cells if (c.model, c.load) == (last, row.under.load))
            assert row.whole is not None
            assert row.whole.value == pytest.approx(own.value("speedup"))
            told = [cell.text for cell in made.cells]
            assert (f"{row.whole.value:.2f}" in told[5]) is bool(reference), told
    groups = [cell.title for cell in by_size(run)[0].table.groups]
    assert "Decode speed over vllm" in " ".join(groups)


def without_native(run: Overview) -> Overview:
    alone = tuple(c for c in run.cells if c.variant.backend not in OWN)
    return dataclasses.replace(run, cells=alone)


def test_each_machine_has_a_table_and_a_dash_its_reason(run: Overview) -> None:
    last = MODELS[-1].label()
    kept = tuple(c for c in run.cells if (c.variant.backend, c.model) != ("vllm-early-exit", last))
    other = tuple(dataclasses.replace(c, apart="another machine") for c in kept)
    tables = by_size(dataclasses.replace(run, cells=(*kept, *other)))
    assert [table.apart for table in tables] == ["", "another machine"]
    for table in tables:
        assert list(table.models) == [model.label() for model in MODELS]
        row = next(row for row in table.rows if row.variant.backend == "vllm-early-exit")
        assert [gain is None for gain in row.gains] == [False, False, True]
        assert row.missing[2] == "it was not run there, or every trial failed"


def test_numbers_are_those_of_the_cells_and_the_reference_has_no_row(run: Overview) -> None:
    rows = rows_of(by_size(run))
    assert "vllm" not in rows
    first = next(
        c for c in run.cells if c.variant.backend == "adadecode" and c.load == run.loads[0]
    )
    gain = rows["adadecode"].gains[0]
    assert gain is not None
    assert gain.value == pytest.approx(first.value("speedup_native"))
    over = next(c for c in run.cells if c.variant.backend == PLAIN.name and c.load == run.loads[0])
    plain = rows[PLAIN.name].gains[0]
    assert plain is not None
    assert plain.value == pytest.approx(over.value("speedup"))


def test_what_is_not_valid_is_struck_and_never_the_best(run: Overview) -> None:
    doubted = changed(
        run,
        lambda cell: (
            dataclasses.replace(cell, valid_trials=0, metrics={**cell.metrics, "void_metrics": []})
            if cell.variant.backend == "adadecode" and cell.model == MODELS[0].label()
            else cell
        ),
    )
    tables = by_size(doubted)
    (found,) = tables
    row = next(row for row in found.table.rows if row.variant.backend == "adadecode")
    assert ["struck" in cell.css for cell in row.cells[2:5]] == [True, False, False]
    assert not any(rows_of(tables)["adadecode"].best)


def test_the_best_keeps_the_text(run: Overview) -> None:
    """Two methods of one engine, of which the faster is lossy."""
    ada = next(v for v in run.variants if v.backend == "adadecode")
    other = dataclasses.replace(ada, index=9, backend="tetris", lossy=True)
    faster = [
        dataclasses.replace(
            c,
            variant=other,
            metrics={**c.metrics, "speedup_native": 9.0},
        )
        for c in run.cells
        if c.variant.backend == "adadecode"
    ]
    third = [dataclasses.replace(c, variant=dataclasses.replace(ada, index=8)) for c in faster]
    third = [dataclasses.replace(c, metrics={**c.metrics, "speedup_native": 1.01}) for c in third]
    (table,) = by_size(dataclasses.replace(run, cells=(*run.cells, *faster, *third)))
    first = {row.variant.index: row.best[0] for row in table.rows if row.under.load == run.loads[0]}
    assert (first[ada.index], first[9], first[8]) == (True, False, False)


def test_what_decisions_brought_stands_beside_what_they_have_to_bring(run: Overview) -> None:
    rows = rows_of(by_size(run))
    last = [c for c in run.cells if c.load == run.loads[0] and c.model == MODELS[-1].label()]
    speedup = next(c for c in last if c.variant.backend == "adadecode").value("speedup_native")
    assert speedup
    assert rows["adadecode"].brings == "3.00 tokens a step"
    assert rows["adadecode"].needs == f"{3 / speedup:.2f} tokens a step"
    # 0.75 of the bytes are layers: all of them take 0.0075 s of the plain step of 0.01
    assert rows["vllm-early-exit"].brings == "80.0% of layers skipped"
    assert rows["vllm-early-exit"].needs == "0% of layers skipped"
    assert (rows[PLAIN.name].brings, rows[PLAIN.name].needs) == ("", "")


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ({"drafts_per_step": 0.0}, ("nothing was drafted", "")),
        ({"void_metrics": ["speedup_native"]}, ("3.00 tokens a step", "")),
        (
            {"speedup_native_low": 0.43, "speedup_native_high": 2.89},
            ("3.00 tokens a step", ""),
        ),
    ],
)
def test_what_nobody_can_say_is_left_out(
    run: Overview, metrics: dict[str, Any], told: tuple[str, str]
) -> None:
    doubted = changed(
        run,
        lambda cell: (
            dataclasses.replace(cell, metrics={**cell.metrics, **metrics})
            if cell.variant.backend == "adadecode"
            else cell
        ),
    )
    row = rows_of(by_size(doubted))["adadecode"]
    assert (row.brings, row.needs) == told


def test_a_step_that_no_exits_could_pay_for(run: Overview) -> None:
    slow = changed(
        run,
        lambda cell: (
            dataclasses.replace(cell, metrics={**cell.metrics, "step_s": 0.02})
            if cell.variant.backend == "vllm-early-exit"
            else cell
        ),
    )
    assert rows_of(by_size(slow))["vllm-early-exit"].needs == "not at this load"


def test_a_run_of_one_model_has_it_where_decisions_were_replayed(tmp_path: Path) -> None:
    small: dict[str, Any] = {"workloads": ["gsm8k"], "loads": LOADS[:1], "repeats": 2}
    one = write_run(tmp_path, engines=ENGINES[:2], models=MODELS[:1], requests=12, **small)
    seen = overview(load(one))
    assert by_size(seen) == []
    replays = changed(
        seen,
        lambda c: dataclasses.replace(c, variant=dataclasses.replace(c.variant, is_replay=True)),
    )
    (table,) = by_size(replays)
    assert list(table.models) == [""]
    beside = changed(
        seen,
        lambda c: dataclasses.replace(
            c, variant=dataclasses.replace(c.variant, is_replay=not c.variant.is_reference)
        ),
    )
    assert by_size(beside) == [], "never beside real runs"


def test_the_page_shows_it_in_the_place_of_sentences(folder: Path) -> None:
    page = render(load(folder))
    verdict = page[page.index('<section id="verdict">') : page.index('class="bar-top"')]
    whole = verdict.split("<div data-verdict")[1]
    assert whole.count('<div class="by-size">') == 1
    assert whole.index("by-size") < whole.index("<details") < whole.index('class="headline told"')
    assert "Which methods pay, and at which size" in whole


@pytest.mark.parametrize("rivals", [1, 2])
def test_bold_is_explained_where_something_is_bold(tmp_path: Path, rivals: int) -> None:
    """The note explained what no number of the table was."""
    slower = MadeUpBackend("adadecode", 0.006, {"gamma": 0.5})
    engines = (ENGINES[0], ADADECODE, slower)[: 1 + rivals]
    replays = [dataclasses.replace(engine, provenance=REPLAYED) for engine in engines]
    small: dict[str, Any] = {"workloads": ["gsm8k"], "loads": LOADS[:1], "repeats": 2}
    page = render(load(write_run(tmp_path, engines=replays, requests=12, **small)))
    table = page.partition("<h3>Which methods pay")[2].partition("</table>")[0]
    assert "pay from" in table
    is_bold = re.search(r'<td class="[^"]*\bbest\b', table) is not None
    assert ("bold:" in table) == is_bold == (rivals > 1)
