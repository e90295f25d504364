"""The command `report`: windows of survival, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.nouns import Load
from tests.support.harness import command
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.report_pages import rows
from tests.support.results.stored_runs import run_of


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    return command.call(monkeypatch, "report", *arguments)


def stored(run: Path) -> None:
    """A run with exits over time."""
    counts = {"checks_layer_2": 1.0, "stage_rows_1": 1.0}
    one = generation("a", [10.0 * place for place in range(20)], telemetry=counts)
    told = replace(one, token_layers=[0, *[2, 6, 6] * 6])
    made = record(trial("tetris", load=Load("closed", concurrency=1)), [told])
    run_of(run, made, backends=[{"name": "tetris", "options": {}}], reference="tetris")


def test_windows_are_as_long_as_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path)
    page = tmp_path / "report.html"
    assert call(monkeypatch, str(tmp_path), "--window-s", "0.05") == 0
    assert len(rows(page.read_text(), "survival")) == 1
    assert "ARIMA, as TETRIS has it, from 8 windows on" in page.read_text()
    assert call(monkeypatch, str(tmp_path)) == 0
    assert 'id="survival"' not in page.read_text()


def test_a_page_below_an_index_is_made_like_one_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had neither forecasts nor what the backends are, and took the better page's place."""
    run = tmp_path / "run"
    stored(run)
    assert call(monkeypatch, str(run), "--window-s", "0.05") == 0
    alone = (run / "report.html").read_text()
    assert "ARIMA, as TETRIS has it, from 8 windows on" in alone
    assert call(monkeypatch, str(run)) == 0
    assert call(monkeypatch, str(tmp_path), "--window-s", "0.05") == 0
    assert (run / "report.html").read_text() == alone


@pytest.mark.parametrize("length", ["0", "-1", "inf", "nan"])
def test_a_length_that_is_none_is_one_line(
    length: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, str(tmp_path), "--window-s", length) == 2
    told = f"--window-s: expected a number above 0, found {float(length):g}"
    assert capsys.readouterr().err == f"decodebench: {told}\n"


def test_a_page_can_be_written_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder of a run may be read-only."""
    run, page = tmp_path / "run", tmp_path / "page.html"
    made = record(trial(load=Load("closed", concurrency=1)), [generation("a", [10.0, 20.0])])
    run_of(run, made, backends=[{"name": "vllm", "options": {}}])
    assert call(monkeypatch, str(run), "--out", str(page)) == 0
    assert capsys.readouterr().out == f"report: {page}\n"
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert not (run / "report.html").exists()
    assert call(monkeypatch, str(tmp_path), "--out", str(page)) == 2
    assert "holds several runs; name the folder of one" in capsys.readouterr().err
