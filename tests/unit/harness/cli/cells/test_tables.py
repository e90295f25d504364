"""The result table at every width, in Markdown and as CSV; what a run says at its end."""

from __future__ import annotations

import csv
import dataclasses
import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harness.cli import display
from harness.cli import main as cli
from harness.cli.cells import formats, outcome
from harness.cli.cells.table import fitted
from harness.cli.cells.values import number
from harness.core.errors import UserError
from harness.core.nouns import Slo, Workload
from results.rows import cells
from tests.support.harness.command import call
from tests.support.results.make_trials import record, trial
from tests.support.results.stored_runs import answer, run_of
from tests.unit.harness.cli.test_display import METRICS, cell


def some(**changes: Any) -> list[dict[str, Any]]:
    return [
        cell(is_reference=True, backend="vllm", provenance="official code", **changes),
        cell(options={"verify": False}, lossless=False, **changes),
        cell(backend="http", provenance="official code", lossless=None, label="our server"),
    ]


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_a_table_fits_its_width_and_cuts_nothing(
    width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    display.print_cells(some(), width)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    assert "1671.46 [1494.48, 1846.74]" in text
    assert "…" not in text
    shown = fitted(some(), width)
    assert shown.headings[:2] == ["backend", "speed-up"]
    assert shown.headings[-1] == "valid"


def test_a_wider_table_has_what_a_narrower_one_has() -> None:
    have = [set(fitted(some(), width).headings) for width in (60, 80, 100, 120, 160)]
    assert all(narrow <= wide for narrow, wide in pairwise(have))
    assert len(have[0]) < len(have[-1])
    assert set(fitted(some()).headings) >= have[-1]


def test_what_does_not_fit_is_said() -> None:
    *_, note = fitted(some(), 80).notes
    assert note.startswith("not shown for want of width: p99, ")
    assert "show --wide has all" in note
    assert not any("want of width" in note for note in fitted(some()).notes)


def test_reasons_are_letters_where_words_do_not_fit() -> None:
    narrow, wide = fitted(some(), 80), fitted(some())
    assert {row[-1] for row in narrow.tables[0].rows} == {"a"}
    assert {row[-1] for row in wide.tables[0].rows} == {"machine-noisy"}
    assert any(note.startswith("a = machine-noisy: 3 of 3 rows") for note in narrow.notes)


def test_a_label_is_the_name_and_a_server_is_unverified() -> None:
    names = [row[0] for row in fitted(some()).tables[0].rows]
    assert names == [
        "vllm",
        "adadecode (re-implementation, lossy)",
        "our server (unverified)",
    ]


def test_prompts_of_other_sources_are_other_tables() -> None:
    cells = [cell(source="bundled"), cell(source="/data/mine.jsonl"), cell(source="hub")]
    titles = [table.title for table in fitted(cells).tables]
    assert titles == [
        "gsm8k, closed c=1, demo (bundled prompts)",
        "gsm8k, closed c=1, demo (mine.jsonl)",
        "gsm8k, closed c=1, demo (hub)",
    ]


def test_cells_of_other_settings_are_tables_that_say_which(tmp_path: Path) -> None:
    asked = trial("fast")
    tight = dataclasses.replace(asked, slo=Slo(ttft_ms=9), requests=1)
    prompts = dataclasses.replace(asked, workload=Workload("gsm8k", checksum="0123456789"))
    stored = run_of(
        tmp_path, *(record(one, [answer(5, [1, 2])]) for one in (asked, tight, prompts))
    )
    tables = fitted(cells(stored)).tables
    title = "gsm8k, closed c=8, demo (bundled prompts)"
    assert {table.title for table in tables} == {
        f"{title}, requests=2, slo_ttft_ms=null, workload_checksum=c0ffee",
        f"{title}, requests=1, slo_ttft_ms=9, workload_checksum=c0ffee",
        f"{title}, requests=2, slo_ttft_ms=null, workload_checksum=01234567",
    }
    assert [len(table.rows) for table in tables] == [1, 1, 1]


def test_hosts_whose_trials_are_pooled_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copied folder goes on at another machine of the same kind."""
    places = [("a", "gpu-2"), ("a", "gpu-1"), ("b", "gpu-3"), ("b", None)]
    made = [
        record(
            trial("fast", repeat=repeat),
            [answer(5, [1, 2])],
            environment={"fingerprint": fingerprint, "host": host},
        )
        for repeat, (fingerprint, host) in enumerate(places)
    ]
    run_of(tmp_path / "both", *made)
    run_of(tmp_path / "one", *made[1:])
    assert call(monkeypatch, "show", str(tmp_path / "both")) == 0
    assert "hosts of one kind, pooled: gpu-1, gpu-2\n" in capsys.readouterr().out
    assert call(monkeypatch, "show", str(tmp_path / "one")) == 0
    assert "hosts" not in capsys.readouterr().out


def test_a_damaged_record_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = [trial("fast", repeat=repeat) for repeat in range(3)]
    run, other = tmp_path / "run", tmp_path / "other"
    for folder in (run, other):
        run_of(folder, *(record(one, [answer(5, [1, 2])]) for one in trials))
    text, payload, whole = (one.key("test") for one in trials)
    (run / "trials" / f"{text}.json").write_text("{")
    (run / "trials" / f"{payload}.parquet").write_bytes(b"PAR1")
    for form in ("--json", "--csv", "--wide"):
        assert call(monkeypatch, "show", str(run), form) == 0
        told = capsys.readouterr()
        assert told.err.count("warning: left out: ") == 2
        assert f"{text}.json: broken trial record" in told.err
        assert f"{payload}.parquet: 4 bytes that are not the" in told.err
        assert told.out
        assert whole in told.out or form == "--wide"
    outcome.tell_results(run)
    assert "warning: left out: " in capsys.readouterr().err
    for command in (("compare", str(other), str(run)), ("history", str(run))):
        assert call(monkeypatch, *command) == 2
        assert f"{text}.json: broken trial record" in capsys.readouterr().err


def test_markdown_has_all_columns_and_escapes_what_is_not_its_own() -> None:
    text = formats.as_markdown([cell(label="a|b *c*", options={}, source="bundled")])
    lines = text.splitlines()
    assert lines[0] == "### gsm8k, closed c=1, demo (bundled prompts)"
    assert lines[2].startswith("| backend | speed-up | same |")
    assert lines[4].startswith(r"| a\|b \*c\* (re-implementation) | 1671.46 \[1494.48, 1846.74\] |")
    assert len({line.replace("\\|", "").count("|") for line in lines[2:5]}) == 1


def test_csv_has_numbers_as_they_are() -> None:
    rows = list(csv.DictReader(io.StringIO(formats.as_csv(some()))))
    assert [row["speedup"] for row in rows] == ["1671.46"] * 3
    assert rows[1]["options"] == '{"verify": false}'
    assert rows[1]["pass_at_1"] == ""
    assert rows[0]["valid"] == "false"
    assert [row["label"] for row in rows] == ["", "", "our server"]


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_csv_with_line_ends_in_a_text_can_be_read_back(end: str) -> None:
    """A lone carriage return stood outside quotes."""
    label = f"our{end}server{end}"
    text = formats.as_csv([cell(label=label), cell(label="theirs")])
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["label"] for row in rows] == [label, "theirs"]


def test_a_run_says_which_cells_are_unsound_and_why() -> None:
    assert list(outcome.unsound([cell(valid=True)])) == ["sound: all 1 cells"]
    reasons = ["too-few-samples: 3 answers", "machine-noisy: 49%"]
    many = [cell(valid=True), *[cell(invalid_reasons=reasons) for _ in range(7)]]
    found = list(outcome.unsound(many))
    assert found[0] == "unsound: 7 of 8 cells"
    assert found[1] == "  adadecode, gsm8k, closed c=1: machine-noisy: 49%"
    assert found[-1] == "  and 2 more"
    failed = cell(statuses={"ok": 1, "out_of_memory": 2}, label="mine")
    assert list(outcome.unsound([failed]))[1].endswith("mine, gsm8k, closed c=1: 2 out of memory")
    (_, few) = outcome.unsound([cell(invalid_reasons=[])])
    assert few.endswith("fewer than 5 answers")


def test_a_remark_is_no_reason_and_the_weightiest_comes_first() -> None:
    """Where reasons are many a remark came before them: "noise-not-checked" of a server."""
    many = [
        *("noise-not-checked: nobody looked", "imported: measured by it", "kv-starved: 3 of 9"),
        *("reference-not-valid: vllm, repeat 1", "client-late: 29 ms", "failures: 1 of 24"),
        "too-few-samples: 4 answers, too few to say anything about p99",
    ]
    lost, bare = cell(invalid_reasons=many), cell(invalid_reasons=many[:1], label="bare")
    _, first, second = outcome.unsound([lost, bare])
    assert first.endswith("closed c=1: failures: 1 of 24")
    assert second.endswith("closed c=1: fewer than 5 answers")
    shown = fitted([lost, bare])
    told = [row[-1] for row in shown.tables[0].rows]
    assert told == ["failures, client-late, reference-not-valid", "too-few-for-a-median"]
    assert "noise-not-checked: 2 of 2 rows; the report has the reasons in full" in shown.notes
    narrow = fitted([lost], 80)
    assert [row[-1] for row in narrow.tables[0].rows] == ["a, b, c"]
    assert any(note.startswith("a = failures: 1 of 1 rows") for note in narrow.notes)
    assert any(note.startswith("noise-not-checked: 1 of 1 rows") for note in narrow.notes)


@pytest.mark.parametrize("requests", [99, 100])
def test_the_mark_of_too_few_requests_is_explained_where_it_stands(requests: int) -> None:
    shown = fitted([cell(n_completed=requests)])
    marked = any(text.endswith("?") for row in shown.tables[0].rows for text in row)
    assert marked == any(note.startswith("?: ") for note in shown.notes) == (requests < 100)


def test_a_cell_that_failed_has_no_mark_of_too_few_requests() -> None:
    """It has no number of requests either, with which all tables of the run ended."""
    failed = cell(n_completed=None, **{f"{name}_p50": None for name in METRICS})
    assert not any(note.startswith("?: ") for note in fitted([failed]).notes)


def test_one_form_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected one of --json, --wide, --csv and --markdown"):
        cli.app(["show", str(tmp_path), "--json", "--csv"], standalone_mode=False)


def test_an_interval_that_says_nothing_has_no_digits() -> None:
    """Two repeats on a machine that another process came to: [0.00, 3374653947840.05]."""
    shown = fitted(some(speedup=10.34, speedup_low=3e-12, speedup_high=3.4e12))
    column = shown.headings.index("speed-up")
    assert [row[column] for row in shown.tables[0].rows][:2] == ["reference", "10.34 [0, ∞]"]
    assert any(note.startswith("[0, ∞]: the repeats differ") for note in shown.notes)
    assert not any(note.startswith("[0, ∞]") for note in fitted(some()).notes)


def test_a_void_number_is_marked_where_the_rest_of_its_row_holds() -> None:
    void = cell(void_metrics=["goodput_req_per_s"], options={"heads": "mixed"})
    whole = cell(void_metrics=["goodput_req_per_s", "output_tok_per_s"], options={"heads": "full"})
    shown = fitted([cell(), void, whole])
    column = shown.headings.index("goodput")
    assert [row[column] for row in shown.tables[0].rows] == ["0.1", "0.1!", "0.1"]
    assert any(note.startswith("!: not to be believed") for note in shown.notes)
    assert not any(note.startswith("!") for note in fitted([cell(), whole]).notes)


def test_goodput_without_an_objective_is_a_dash() -> None:
    """It is throughput then, and a column of it said that all answers met an objective."""
    shown = fitted([cell(), cell(slo_ttft_ms=None), cell(slo_ttft_ms=None, slo_e2e_ms=900.0)])
    column = shown.headings.index("goodput")
    assert [row[column] for table in shown.tables for row in table.rows] == ["0.1", "–", "0.1"]
    assert any(note.startswith("goodput –: there was no objective") for note in shown.notes)
    assert not any(note.startswith("goodput –") for note in fitted([cell()]).notes)


def test_a_number_that_rounds_to_a_thousand_has_no_exponent() -> None:
    assert [number(x) for x in (999.4, 999.7, 1000.0)] == ["999", "1,000", "1,000"]


def test_how_prompts_use_the_chat_template_stands_in_the_title() -> None:
    told = [cell(source="hub", chat="enable_thinking=false"), cell(source="bundled", chat=None)]
    assert [table.title for table in fitted(told).tables] == [
        "gsm8k, closed c=1, demo (hub, enable_thinking=false)",
        "gsm8k, closed c=1, demo (bundled prompts)",
    ]
