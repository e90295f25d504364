"""Figures of systems that are planned, at SLOs and rates for which there is no plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from tests.unit.harness.cli.figures.test_figure_files import FIGURE, FILE, MODEL, call, write


@pytest.mark.parametrize("measure", ["goodput", "price", "goodput by mix", "planning"])
def test_a_plan_that_there_is_not_says_what_it_would_need(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    measure: str,
) -> None:
    """A batch of two takes 2.8 ms at least."""
    monkeypatch.chdir(tmp_path)
    more: dict[str, Any] = {"price": {"rate": 5}, "goodput by mix": {"window_s": 0.2}}
    some = FIGURE | {"measure": measure, "ratios": [], **more.get(measure, {})}
    some["series"] = [{"name": "staged", "system": "pipeline"}]
    some["settings"] = {"cluster": {"fast": 3}, "batch": 2, "slo_ms": 0.5}
    if measure == "goodput by mix":
        some["over"] = {"mix": [0.9, 0.1]}
    write(FILE | {"figures": [some]}, MODEL)
    assert call(monkeypatch, "f.yaml", "--requests", "500") == main.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    over = "mix" if measure == "goodput by mix" else "batch"
    told = f"series 'staged': no plan meets its SLO at any {over}; the smallest SLO that one meets "
    assert line.startswith(f"decodebench: f.yaml: figures[0]: {told}")
    least = float(line.split()[-2])
    assert least >= 2.8
    if over == "mix":
        some["settings"] |= {"slo_ms": least}
    else:
        some |= {"over": {"slo_ms": [1, least]}}
    write(FILE | {"figures": [some]}, MODEL)
    assert call(monkeypatch, "f.yaml", "--requests", "500") == 0
    (numbers,) = json.loads(Path("runs/made_up/figures.json").read_text())
    note = f"staged at slo_ms 1: no plan meets 1 ms; the smallest SLO that one meets is {least:g}"
    assert numbers["notes"] == ([] if over == "mix" else [f"{note} ms"])
    assert all(one in capsys.readouterr().out for one in numbers["notes"])
    assert all(one in Path("runs/made_up/report.html").read_text() for one in numbers["notes"])


def test_a_rate_beyond_every_plan_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    series = [{"name": "staged", "system": "pipeline"}]
    asked = FIGURE | {"measure": "price", "rate": 1e6, "ratios": [], "series": series}
    write(FILE | {"figures": [asked]}, MODEL)
    assert call(monkeypatch, "f.yaml") == main.BAD_INPUT
    told = "no plan meets its SLO at any batch; at any SLO none reaches the rate 1e+06\n"
    assert capsys.readouterr().err.endswith(told)
