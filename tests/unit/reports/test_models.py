"""A run of several models: no number and no sentence pools two of them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli import main as cli
from harness.cli.display import print_cells
from harness.core.nouns import Load, Model
from reports.cells import overview
from reports.collect import Samples
from reports.page import render
from reports.sections.exits import ablations, prediction
from reports.words import facts
from reports.words.ranking.by_size import by_model
from reports.words.ranking.headline import BETWEEN_ENGINES
from reports.words.ranking.scoped import scoped_verdicts
from results import load
from results.rows import cells, summaries
from tests.support.results.made_effects import made_effects
from tests.support.results.report_runs import ENGINES, EXITS, write_run

CLOSED = (Load("closed", concurrency=1),)
TWO = (
    Model("0.5b", checksum="1", shape=True, layers=1),
    Model("0.5b", checksum="2", shape=True, layers=3),
)
NAMES = ["0.5b, 1 layer", "0.5b, 3 layers"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("models") / "run"
    return write_run(
        target, engines=ENGINES[:2], workloads=["gsm8k"], loads=CLOSED, repeats=2, models=TWO
    )


def test_rows_and_cells_name_the_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = load(folder)
    assert len(summaries(run)) == 2 * 2 * 2
    found = {(c["model"], c["backend"]): c["speedup"] for c in cells(run)}
    assert list(found) == [(name, b) for name in NAMES for b in ("vllm", "vllm-early-exit")]
    assert found[NAMES[0], "vllm-early-exit"] > 1 > found[NAMES[1], "vllm-early-exit"]
    assert sorted(run.requests["model"].unique()) == NAMES
    monkeypatch.setattr("sys.argv", ["decodebench", "show", str(folder), "--json"])
    with pytest.raises(SystemExit):
        cli.main()
    told = [json.loads(line)["model"] for line in capsys.readouterr().out.splitlines()]
    assert sorted(set(told)) == NAMES


def test_each_model_has_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_cells(cells(load(folder)))
    out = capsys.readouterr().out
    assert [out.count(f"gsm8k, closed c=1, {name}") for name in NAMES] == [1, 1]


def test_the_page_has_a_verdict_and_a_headline_for_each_model(folder: Path) -> None:
    run = load(folder)
    seen = overview(run)
    assert seen.models == NAMES
    assert seen.workloads == [f"gsm8k on {name}" for name in NAMES]
    page = render(run)
    whole, *parts = page.split("<div data-verdict")[1:]
    assert whole.count('<ul class="verdicts">') == 2
    assert all(f"<h3>{name}</h3>" in whole for name in NAMES)
    assert [part.count('<ul class="verdicts">') for part in parts] == [1, 1], "a workload, a model"
    head = page[page.index('<p class="headline told">') :][:600]
    assert f"{NAMES[0]}: vllm-early-exit" in head
    assert "was faster" in head.partition(NAMES[1])[0]
    assert f"{NAMES[1]}: vllm-early-exit was not clearly faster than vllm" in head


def test_a_run_of_one_model_names_it_in_no_row(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", engines=ENGINES[:2], workloads=["gsm8k"], models=TWO[:1])
    seen = overview(load(one))
    assert (seen.models, seen.workloads) == ([""], ["gsm8k"])
    assert "<h3>0.5b" not in render(load(one))


def test_a_whole_run_of_two_models_is_no_cause_for_alarm(folder: Path, tmp_path: Path) -> None:
    run = load(folder)
    assert facts.alerts(run, overview(run)) == []
    whole = scoped_verdicts(overview(run), Samples(), 0.02)[0]
    assert whole.few_repeats.startswith("Of 2 valid speed-ups 2 rest on 2 repeats. ")
    verdict = render(run).partition('<section id="verdict">')[2]
    assert verdict.index('<div class="by-size">') < verdict.index("Of 2 valid speed-ups 2 rest")
    assert "0.5b, 1 layer (float32) and 0.5b, 3 layers" in facts.summary(run, overview(run))
    less = load(Path(shutil.copytree(folder, tmp_path / "less")))
    less.store.remove(less.stored[0].record.key)
    less = load(less.path)
    (line,) = [one for one in facts.alerts(less, overview(less)) if "not complete" in one]
    assert "1 of 8 trials have not been run" in line


def test_prompts_are_shown_for_every_model(folder: Path) -> None:
    run = load(folder)
    seen = overview(run)
    found = facts.prompts_by_workload(run, seen)
    assert set(found) == set(seen.workloads)
    assert all(len(rows) == 24 for rows in found.values())


def test_early_predictions_are_averaged_within_a_model(tmp_path: Path) -> None:
    engines = (EXITS[0], *EXITS[1:4])
    run = load(write_run(tmp_path / "exits", engines=engines, workloads=["gsm8k", "xsum"],
                         loads=CLOSED, repeats=2, models=TWO))  # fmt: skip
    seen = overview(run)
    early = [cell for cell in seen.cells if cell.variant.backend == "adadecode"]
    rows = ablations.table(early).rows
    assert len(rows) == 3 * 2
    assert len({row.place for row in rows}) == len(rows), "each has a permalink of its own"
    assert {row.group for row in rows} == {f"closed c=1 on {name}" for name in NAMES}
    sentences = prediction.sentences(early)
    assert all(any(f"on {name} the passes" in text for text in sentences) for name in NAMES)


def test_the_smallest_model_comes_first_and_what_holds_for_all_is_said_once(folder: Path) -> None:
    seen = overview(load(folder))
    sized = {NAMES[0]: 3, NAMES[1]: 1}
    read = {"layers": 1, "layer": 1, "kv": 1}
    ends = {"speedup_native_low": 1.4, "speedup_native_high": 1.6}
    over_plain = {NAMES[0]: {"speedup_native": 1.5, **ends}, NAMES[1]: dict[str, float]()}
    cells = [
        replace(
            cell,
            measured=replace(cell.measured, pass_bytes={**read, "head": sized[cell.model]}),
            effective={} if cell.variant.is_reference else {"kernels": "native"},
            metrics={**cell.metrics, "floor_share": 0.2, **over_plain[cell.model]},
            effects={**cell.effects, "speedup_native": made_effects(1.5, 1.4, 1.6, "gsm8k")},
        )
        for cell in seen.cells
    ]
    small_last = replace(seen, cells=tuple(cells))
    assert [model for model, _ in by_model(seen)] == NAMES
    assert [model for model, _ in by_model(small_last)] == NAMES[::-1]
    words = scoped_verdicts(small_last, Samples(), 0.02)[0].headline
    assert words.startswith(f"{NAMES[1]}: ")
    assert words.count(BETWEEN_ENGINES) == 1
    assert words.endswith(BETWEEN_ENGINES)
    reading = [
        replace(
            cell, metrics={**cell.metrics, "floor_share": 0.9 if cell.model == NAMES[0] else 0.2}
        )
        for cell in cells
    ]
    words = scoped_verdicts(replace(seen, cells=tuple(reading)), Samples(), 0.02)[0].headline
    assert words.splitlines()[-1] == f"{NAMES[1]}: {BETWEEN_ENGINES}"


def test_the_lead_counts_a_workload_once_and_names_models_by_size(folder: Path) -> None:
    run = load(folder)
    seen = overview(run)
    told = facts.summary(run, seen)
    assert "on the models 0.5b, 1 layer (float32) and 0.5b, 3 layers (float32), " in told
    assert ", 1 workload (gsm8k), " in told
    read = {"layers": 1, "layer": 1, "kv": 1}
    cells = [
        replace(
            cell,
            measured=replace(
                cell.measured, pass_bytes={**read, "head": 5 - NAMES.index(cell.model)}
            ),
        )
        for cell in seen.cells
    ]
    turned = facts.summary(run, replace(seen, cells=tuple(cells)))
    assert "on the models 0.5b, 3 layers (float32) and 0.5b, 1 layer (float32), " in turned
