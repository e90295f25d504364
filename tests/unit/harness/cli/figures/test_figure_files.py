"""Experiment files of figures, from the command line to the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer.core
import typer.main
import yaml

from harness.cli import main
from harness.cli.figures.figure_file import read_figures
from tests.support.harness import command
from tests.support.tetris.bert import FILES

MODEL: dict[str, Any] = {
    "layers": 4,
    "gflop": [1, 1, 1, 4],
    "state_mb": [8, 2, 0.1],
    "link_gb_per_s": 8,
    "ramp": 0.1,
    "survival": [1, 0.9, 0.6, 0.3, 0.3],
    "devices": {"fast": {"tflop_per_s": 10, "filled_by": 4, "price": 2}},
}
FIGURE: dict[str, Any] = {
    "name": "Figure 1",
    "title": "Four layers",
    "over": {"batch": [2, 4]},
    "settings": {"cluster": {"fast": 3}},
    "series": [
        {"name": "staged <b>", "system": "pipeline"},
        {"name": "plain", "system": "plain"},
        {"name": "hasty", "system": "plain", "slo_ms": 0.1},
    ],
    "ratios": [["staged <b>", "plain"]],
    "paper": "1.5",
    "why": "It is made up",
}
FILE: dict[str, Any] = {
    "name": "made_up",
    "settings": {"model": "model.yaml", "slo_ms": 50, "requests": 2000},
    "figures": [FIGURE],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(FILE, MODEL)


def write(told: Any, model: Any) -> None:
    Path("f.yaml").write_text(yaml.safe_dump(told))
    Path("model.yaml").write_text(yaml.safe_dump(model))


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    return command.call(monkeypatch, "simulate", *arguments)


def test_the_files_of_the_paper_are_whole() -> None:
    found = [
        one for path in sorted(FILES.glob("*.yaml")) for one in read_figures(path, None).figures
    ]
    names = {one.name for one in found}
    assert names == {
        *(f"Figure {number}" for number in range(7, 20)),
        "Figure 11, unlike devices",
        "Table 1",
        "Survival",
        "Forecast error",
    }


def test_numbers_and_a_page_that_needs_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "f.yaml", "--out", "made/here", "--requests", "500") == 0
    said = capsys.readouterr().out
    assert "Figure 1 (simulation): Four layers" in said
    assert re.search(r"here: staged <b> over plain 1\.\d\d to 1\.\d\d", said)
    (numbers,) = json.loads(Path("made/here/figures.json").read_text())
    assert numbers["at"] == ["2", "4"]
    assert numbers["provenance"] == "simulation"
    # 7 GFLOP for the four inputs that fill a device take 2.8 ms, whether they are 2 or 4
    assert numbers["series"]["plain"] == pytest.approx([3 * 2 / 2.8e-3, 3 * 4 / 2.8e-3], rel=0.02)
    assert numbers["series"]["hasty"] == [None, None]
    ratios = numbers["over"]["staged <b> over plain"]
    assert ratios[1] == numbers["series"]["staged <b>"][1] / numbers["series"]["plain"][1]
    page = Path("made/here/report.html").read_text()
    assert page.count("<svg") == 1
    assert "staged &lt;b&gt; over plain" in page
    assert "It is made up" in page
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", page)


def test_the_report_of_a_run_is_not_written_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run's folder may have any name, and this page is no report of it."""
    run = Path("runs/made_up")
    run.mkdir(parents=True)
    (run / "experiment.yaml").touch()
    (run / "report.html").write_text("of a run")
    for arguments in ([], ["--out", str(run)]):
        assert call(monkeypatch, "f.yaml", *arguments) == main.BAD_INPUT
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{run}: the folder of a run (it has experiment.yaml); name another --out" in line
    assert (run / "report.html").read_text() == "of a run"
    write(FILE | {"name": "../f"}, MODEL)
    assert call(monkeypatch, "f.yaml") == main.BAD_INPUT
    assert "f.yaml: name: expected a folder's name, without '/'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gflop", "cluster", "told"),
    [
        (1e-7, {"fast": 3}, "profile: layer_ms of 'fast': expected times above 0"),
        (1, {"fast": 300, "slow": 300}, "600 devices of 2 kinds for 4 layers: too many to plan"),
    ],
)
def test_an_error_is_of_its_figure_and_those_before_it_stay(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    gflop: float,
    cluster: dict[str, int],
    told: str,
) -> None:
    kinds = {"devices": dict.fromkeys(("fast", "slow"), MODEL["devices"]["fast"])}
    name = f"{gflop}.yaml"
    Path(name).write_text(yaml.safe_dump(MODEL | kinds | {"gflop": gflop}))
    bad = FIGURE | {"settings": {"model": name, "cluster": cluster}}
    write(FILE | {"figures": [FIGURE, bad]}, MODEL)
    assert call(monkeypatch, "f.yaml", "--requests", "500") == main.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"decodebench: f.yaml: figures[1]: {told}")
    (kept,) = json.loads(Path("runs/made_up/figures.json").read_text())
    assert kept["series"]["plain"]


def test_a_folder_that_cannot_be_is_told_before_anything_is_simulated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("harness.cli.figures.command._made", lambda _: pytest.fail("simulated"))
    assert call(monkeypatch, "f.yaml", "--out", "f.yaml") == main.BAD_INPUT
    assert "--out f.yaml: cannot be written" in capsys.readouterr().err


def test_figures_of_devices_and_of_mixes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = FIGURE | {"name": "2", "measure": "devices", "rate": 3000, "ratios": []}
    costs["series"] = FIGURE["series"][1:]
    costs["settings"] = {"cluster": {"fast": 5}}
    mixes = FIGURE | {"name": "3", "measure": "goodput by mix", "window_s": 0.2, "ratios": []}
    mixes["over"] = {"mix": [0.9, 0.1]}
    mixes["settings"] = {"cluster": {"fast": 3}, "batch": 4}
    write(FILE | {"figures": [costs, mixes]}, MODEL)
    assert call(monkeypatch, "f.yaml", "--requests", "1000", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads(Path("runs/made_up/figures.json").read_text())
    assert told[0]["series"] == {"plain": [5, 3], "hasty": [None, None]}  # 714 and 1,429 each
    assert told[1]["at"] == ["0.9", "0.1"]
    assert told[1]["at_label"] == "mix, windows of 0.2 s"
    assert "mix, windows of 0.2 s" in Path("runs/made_up/report.html").read_text()
    assert told[1]["series"]["staged <b>"][0] > told[1]["series"]["staged <b>"][1] > 0
    assert told[1]["series"]["hasty"] == [None, None]
    assert Path("runs/made_up/report.html").exists()


def test_forecasts_stand_beside_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {key: FIGURE[key] for key in ("name", "title", "paper", "why")}
    series = [{"name": one, "system": one} for one in ("arima", "last value", "measured")]
    windows = words | {"measure": "survival", "drift": "wave", "over": {"window": [10, 11]}}
    errors = words | {"measure": "forecast error", "over": {"drift": ["steps"]}, "windows": 10}
    figures = [windows | {"series": series}, errors | {"series": series[:2]}]
    write({"name": "f", "settings": {"requests": 500}, "figures": figures}, MODEL)
    assert call(monkeypatch, "f.yaml", "--json") == 0
    by_window, error = (one["series"] for one in json.loads(capsys.readouterr().out))
    assert by_window["last value"][1] == by_window["measured"][0]
    assert all(0 < share < 1 for share in by_window["arima"])
    assert 0 < error["arima"][0] < 0.5


def test_help_says_that_json_is_a_list_of_figures() -> None:
    """It promised one object, which a program cannot tell before it has simulated."""
    command = typer.main.get_command(main.app)
    assert isinstance(command, typer.core.TyperGroup)
    (told,) = [one for one in command.commands["simulate"].params if one.name == "as_json"]
    assert isinstance(told, typer.core.TyperOption)
    assert told.help == "One JSON object; with files a list of figures."


FORECAST: dict[str, Any] = {"measure": "survival", "drift": "wave"}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (FORECAST | {"drift": "waves", "over": {"window": [9]},
         "series": [{"name": "plain", "system": "arima"}], "ratios": []},
         "drift: unknown drift 'waves'; did you mean 'wave'?"),
        (FORECAST | {"over": {"window": [8]}}, "windows: expected a whole number of at least 9"),
        (FORECAST | {"over": {"window": [12, 9]}}, "over.window: expected ascending windows"),
        ({"measure": "goodputs"}, "measure: unknown measure 'goodputs'; did you mean 'goodput'?"),
        ({"over": {"bach": [1]}}, "over: 'bach' is no setting that a figure is over; did you mean"),
        ({"over": {"batch": [0]}}, "series[0].batch: expected a whole number of at least 1, got 0"),
        ({"over": {"batch": 1}}, "over.batch: expected a list with at least one value, got 1"),
        ({"settings": {}}, "f.yaml: figures[0].series[0]: the key 'cluster' is missing"),
        ({"settings": {"cluster": {"fat": 1}}}, "unknown device kind 'fat'; did you mean 'fast'?"),
        ({"settings": {"slo": 1}}, "figures[0].settings.slo: unknown setting; did you mean 'slo_m"),
        ({"series": [{"name": "a", "system": "plan"}]}, "'plan' is no system of goodput; did you"),
        ({"series": [{"name": "a", "system": "plain"}] * 2}, "series[1].name: 'a' stands twice"),
        ({"ratios": [["plain", "plane"]]}, "unknown series 'plane'; did you mean 'plain'?"),
        ({"ratios": ["plain"]}, "ratios: expected a list of pairs of series, got 'plain'"),
        ({"rate": 5}, "figures[0].rate: unknown key"),
        ({"measure": "goodput by mix", "window_s": 1e-4, "over": {"mix": [0.5]},
          "settings": {"cluster": {"fast": 3}, "batch": 4}, "series": [FIGURE["series"][1]],
          "ratios": []}, "figures[0].window_s: expected a number of at least 0.1, got 0.0001"),
        ({"measure": "price", "rate": 5, "settings": {"cluster": [{"fast": 1}, {"fast": 2}]}},
         "several clusters, batches or copies: only of goodput"),
        ({"settings": {"cluster": {"fast": 3}, "copies": [4, 8]}},
         "copies: 4 pipelines on at most 3 devices of a kind; expected at most 3"),
        ({"settings": {"cluster": {"fast": 3}, "model": "no.yaml"}}, "no.yaml: cannot be read"),
    ],
)  # fmt: skip
def test_bad_figures_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changed: dict[str, Any],
    told: str,
) -> None:
    write(FILE | {"figures": [FIGURE | changed]}, MODEL)
    assert call(monkeypatch, "f.yaml") == main.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"gflop": [1, 2]}, "gflop: expected a number or a list of 4, got '2 values'"),
        ({"survival": [1, 2]}, "survival[1]: expected a number of at least 0 and up to 1, got 2"),
        ({"survival": [1, 0.5]}, "survival: expected 5 shares from 1 that never rise"),
        ({"devices": {}}, "devices: expected at least one kind of device"),
        ({"ramps": 1}, "model.yaml: ramps: unknown key; did you mean 'ramp'?"),
    ],
)
def test_bad_models_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changed: dict[str, Any],
    told: str,
) -> None:
    Path("other.yaml").write_text(yaml.safe_dump(MODEL | changed))
    write(FILE | {"settings": FILE["settings"] | {"model": "other.yaml"}}, MODEL)
    assert call(monkeypatch, "f.yaml") == main.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert told.replace("model.yaml", "other.yaml") in line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["f.yaml", "--slo-ms", "5"], "--slo-ms: not beside experiment files, which say it"),
        (["f.yaml", "--live"], "--live: not beside experiment files"),
        (["--out", "x"], "--out: expected experiment files beside it"),
        (["--profile", "p"], "simulate: expected --cluster, --slo-ms, or experiment files of"),
        (["f.yaml", "--requests", "5"], "requests: expected a whole number of at least 100, got 5"),
        (["f.yaml", "--out", "f.yaml"], "--out f.yaml: cannot be written"),
    ],
)
def test_options_that_do_not_go_with_files(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    told: str,
) -> None:
    assert call(monkeypatch, *arguments) == main.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
