"""The sections on early predictions: drawn when there are any, and saying what was measured."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from reports.cells import Cell, Overview, overview
from reports.figures.exits import believed, shares
from reports.page import write_report
from reports.sections.exits import ablations, prediction
from reports.sweeps import option_curves
from results import load
from tests.support.exits.early_exits import Exits
from tests.support.results.report_pages import section
from tests.support.results.report_runs import (
    ENGINES,
    EXITS,
    GAMMAS,
    LOADS,
    PLAIN,
    MadeUpBackend,
    write_run,
)

NAMES = ("exits", "prediction", "ablations", "gamma")
SMALL: dict[str, Any] = {
    "workloads": ["humaneval", "gsm8k"],
    "loads": LOADS[:1],
    "repeats": 2,
    "requests": 12,
    "reference": "autoregressive",
}


@pytest.fixture(scope="module")
def ablations_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("ablations"), engines=EXITS, **SMALL)


@pytest.fixture(scope="module")
def seen(ablations_dir: Path) -> Overview:
    return overview(load(ablations_dir))


@pytest.fixture(scope="module")
def text(ablations_dir: Path) -> str:
    return write_report(ablations_dir).read_text()


def written(folder: Path, engines: tuple[MadeUpBackend, ...], **changes: Any) -> str:
    options = {**SMALL, "workloads": ["gsm8k"], "repeats": 1, **changes}
    return write_report(write_run(folder, engines=engines, **options)).read_text()


def early(seen: Overview) -> list[Cell]:
    return [cell for cell in seen.cells if cell.metrics["exits_by_layer"]]


def test_sections_are_drawn_for_backends_with_exits_only(run_text: str, text: str) -> None:
    assert [name for name in NAMES if section(run_text, name)] == []
    assert [name for name in NAMES if section(text, name)] == ["exits", "prediction", "ablations"]
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    order = re.findall(r'<section id="(\w+)"', text)
    assert order.index("quality") < order.index("exits") < order.index("validity")
    assert all(f'href="#{name}"' in text for name in ("exits", "prediction", "ablations"))


def test_exits_of_a_cell_that_is_not_valid_are_faded(seen: Overview) -> None:
    for cell in early(seen):
        for reason in ("not-lossless", "machine-noisy"):
            doubted = dataclasses.replace(cell, valid_trials=0, reasons={reason: (1, reason)})
            assert believed(cell)
            assert not believed(doubted)


def test_shares_are_of_the_committed_tokens(seen: Overview, ablations_dir: Path) -> None:
    run = load(ablations_dir)
    requests = run.requests
    for cell in early(seen):
        found = shares(cell)
        assert found is not None
        assert sum(found.by_layer.values()) + found.full_depth == pytest.approx(1.0)
        tokens = requests[requests["key"].isin(cell.keys)]["n_tokens"].sum()
        count = sum(
            row["n_completed"] for row in run.evaluated["trials"] if row["key"] in cell.keys
        )
        exits = cell.metrics["exits_by_layer"]
        assert found.by_layer[next(iter(exits))] == pytest.approx(
            next(iter(exits.values()))["accepted"] / (tokens - count), rel=0.02
        )
    (plain,) = {shares(cell) for cell in seen.cells if cell.variant.backend == "autoregressive"}
    assert plain is None


def test_passes_of_drafts_that_all_stood_commit_no_token_of_their_own(seen: Overview) -> None:
    """As a pipeline's: of 190 tokens 180 were drafts that stood, verified in 90 passes."""
    exits = {"2": {"checks": 200.0, "exits": 182.0, "accepted": 180.0}}
    told = {"exits_by_layer": exits, "early_prediction_rate": 182 / (182 + 90)}
    cell = dataclasses.replace(early(seen)[0], metrics={**told, "tokens_per_step": 190 / 90})
    found = shares(cell)
    assert found is not None
    assert found.by_layer["2"] == pytest.approx(180 / 190)
    assert found.full_depth == pytest.approx(10 / 190)
    assert found.rejected == pytest.approx(2 / 190)


def test_the_histogram_names_layers_full_depth_and_rejections(text: str) -> None:
    drawn = section(text, "exits")
    for layer in ("2", "4", "6", "all"):
        assert re.search(rf">{layer}</text>", drawn)
    notes = re.findall(r"<title>adadecode[^<]*: gsm8k, layer 2 [^<]*</title>", drawn)
    assert any(
        re.search(r"layer 6 \d.*full depth \d+\.\d%, rejected \d+\.\d%", note) for note in notes
    )
    lossless = [note for note in notes if "lossy" not in note]
    assert any(note.endswith("rejected 0%</title>") for note in set(notes) - set(lossless))


def test_people_read_after_a_layer(text: str) -> None:
    note = re.findall(r'<p class="note">(.*?)</p>', section(text, "exits"))[0]
    assert note.startswith("Tokens by where they were predicted: after the layer ")
    assert "behind" not in section(text, "exits")


def test_the_factors_come_to_what_was_measured(seen: Overview) -> None:
    for cell in early(seen):
        found = prediction.factors(cell)
        assert found is not None
        assert found.predicted * found.passes * found.native == pytest.approx(found.measured)
        assert found.promised == 1.3
        assert 0.9 < found.rows <= 1
        assert 0.85 < found.passes < 1
        assert found.native == pytest.approx(1.02, abs=0.08)


def test_sentences_and_table_say_the_numbers(seen: Overview, text: str) -> None:
    drawn = section(text, "prediction")
    (sentence,) = prediction.sentences(early(seen))
    assert sentence in drawn.replace("&#39;", "'")
    words = r"come to ([\d.]+)×; ([\d.]+)× was .*? is ×([\d.]+) .*? and ×([\d.]+)"
    predicted, measured, passes, native = map(float, re.findall(words, sentence)[0])
    assert predicted * passes * native == pytest.approx(measured, rel=0.02)
    assert "geometric means over 10 cells" in sentence
    assert "On the calibration text the same costs promised 1.30×" in sentence
    for cell in early(seen):
        assert f'data-sort="{cell.value("predicted_speedup")!r}"' in drawn
        assert f'data-sort="{cell.value("speedup_native")!r}"' in drawn


def test_nothing_is_predicted_where_requests_share_passes(tmp_path: Path) -> None:
    run = write_run(
        tmp_path, engines=EXITS[:2], **{**SMALL, "loads": LOADS[:2], "workloads": ["gsm8k"]}
    )
    cells = early(overview(load(run)))
    assert {cell.load for cell in cells} == {"closed c=1", "closed c=8"}
    (sentence,) = prediction.sentences(cells)
    assert sentence.startswith("Under closed c=1 ")


def test_faster_than_its_passes_is_said_so(seen: Overview) -> None:
    cells = [
        dataclasses.replace(cell, metrics={**cell.metrics, "pass_time_share": 1.25})
        for cell in early(seen)
    ]
    (sentence,) = prediction.sentences(cells)
    assert "×1.25 because decoding took less time than its passes cost" in sentence


def test_without_costs_or_autoregressive_nothing_is_predicted(tmp_path: Path) -> None:
    engines = (ENGINES[0], EXITS[1])
    text = written(tmp_path, engines, reference="vllm")
    assert section(text, "exits")
    assert not section(text, "prediction")
    assert not section(text, "ablations")
    assert "Against autoregressive" not in text


def test_the_ablations_are_the_metrics(seen: Overview, text: str) -> None:
    drawn = section(text, "ablations")
    rows = re.findall(r"<tr class=.*?</tr>", drawn, re.DOTALL)
    assert len(rows) == 5
    for cell in early(seen):
        row = rows[cell.variant.index - 1]
        assert f'data-sort="{cell.value("speedup_native")!r}"' in row
        assert f'data-sort="{cell.value("consistency_native")!r}"' in row
    assert [("lossy†" in row) for row in rows] == [False, True, False, False, False]
    assert ">2 4 6</td>" in rows[0]
    assert ">4</td>" in rows[2]
    assert ">original</td>" in rows[3]
    assert ">0.75</td>" in rows[0]
    assert "Load" not in re.findall(r"<thead>.*?</thead>", drawn, re.DOTALL)[0]


def test_the_best_of_a_column_is_valid_and_lossless(seen: Overview) -> None:
    cells = early(seen)
    lossy = [cell for cell in cells if cell.variant.lossy]
    assert max(cells, key=lambda c: c.value("speedup_native") or 0) in lossy
    rows = ablations.table(cells).rows
    best = [(row.variant, item.text) for row in rows for item in row.cells if "best" in item.css]
    assert len(best) == 2
    for variant, shown in best:
        assert not variant.lossy
        fastest = [f"{c.value('speedup_native'):.2f}" for c in cells if not c.variant.lossy]
        assert shown in fastest
    doubtful = [dataclasses.replace(c, valid_trials=0) for c in cells]
    items = [item for row in ablations.table(doubtful).rows for item in row.cells]
    assert not [item for item in items if "best" in item.css]
    why = "no workload is valid in all rows of this load"
    assert [item.text for item in items if item.undefined == why] == [""] * 10
    assert sum("struck" in item.css for item in items) == 20


def test_lossy_backends_are_marked_wherever_their_numbers_stand(text: str, tmp_path: Path) -> None:
    results = re.findall(r"<tr class=.*?</tr>", section(text, "results"), re.DOTALL)
    marked = [row for row in results if "verify=no" in row]
    assert len(marked) == 2
    for row in results:
        assert ("lossy†" in row) == ("verify=no" in row)
    ranked = written(tmp_path, EXITS, repeats=4)
    assert "adadecode verify=no (re-implementation, lossy†) reached" in ranked
    for name in ("throughput", "latency", "tradeoff", "exits", "prediction"):
        drawn = section(text, name)
        assert "re-implementation, lossy†" in drawn
        notes = re.findall(r"<title>(adadecode verify=no[^<]*)</title>", drawn)
        assert notes
        assert all(note.startswith("adadecode verify=no (lossy):") for note in notes)


def test_the_trade_off_is_also_against_plain_decoding(tmp_path: Path, text: str) -> None:
    both = written(tmp_path, (ENGINES[0], PLAIN, EXITS[1]), reference="vllm")
    drawn = section(both, "tradeoff")
    assert "<h3>Against autoregressive</h3>" in drawn
    assert "speed-up over autoregressive (×)" in drawn
    assert "speed-up over the reference (×)" in drawn
    own = section(text, "tradeoff")
    assert "speed-up over the reference (×)" in own
    assert "Against autoregressive" not in own


def test_curves_over_gamma(tmp_path: Path) -> None:
    drawn = section(written(tmp_path / "enough", GAMMAS), "gamma")
    for title in ("Speed-up", "Early prediction rate", "Rejection rate"):
        assert f"<h3>{title}</h3>" in drawn
    assert drawn.count("<figure") == 3
    for gamma in ("0.5", "0.6", "0.75", "0.9"):
        assert f"γ={gamma}: " in drawn
    assert not section(written(tmp_path / "few", GAMMAS[:3]), "gamma")


def test_curves_differ_in_gamma_only(tmp_path: Path) -> None:
    def engine(gamma: Any, **more: Any) -> MadeUpBackend:
        return MadeUpBackend("adadecode", 0.0, {"gamma": gamma, **more}, exits=Exits())

    engines = (
        PLAIN,
        *(engine(g, max_drafts=5) for g in (0.9, 0.5, 0.75)),
        *(engine(g, max_drafts=3) for g in (0.5, 0.6, 0.7, 0.75)),
        *(engine(g, max_drafts=1) for g in (0.5, 0.75)),
        engine("auto", max_drafts=1),
        engine(True, max_drafts=1),
    )
    run = write_run(tmp_path, engines=engines, **{**SMALL, "workloads": ["gsm8k"], "repeats": 1})
    curves = option_curves(early(overview(load(run))), "gamma")
    assert {curve.label: [gamma for gamma, _ in curve.cells] for curve in curves} == {
        "max_drafts=5": [0.5, 0.75, 0.9],
        "max_drafts=3": [0.5, 0.6, 0.7, 0.75],
    }


def test_what_a_backend_says_is_escaped(tmp_path: Path) -> None:
    evil = Exits(heads="<img src=x>\u202e")
    engines = (PLAIN, EXITS[1], MadeUpBackend("adadecode", 0.0, {"max_drafts": 4}, exits=evil))
    text = written(tmp_path, engines)
    assert "<img" not in text
    assert "&lt;img src=x&gt;⟨U+202E⟩" in section(text, "ablations")


def test_nothing_exited_is_full_depth(tmp_path: Path) -> None:
    never = MadeUpBackend("adadecode", 0.0, {"gamma": 1.0}, exits=Exits((0.0, 0.0, 0.0)))
    run = write_run(tmp_path, engines=(PLAIN, never), **{**SMALL, "repeats": 1})
    for cell in early(overview(load(run))):
        assert shares(cell) == ({"2": 0, "4": 0, "6": 0}, 1.0, 0.0)
    assert "full depth 100%, rejected 0%" in write_report(run).read_text()
