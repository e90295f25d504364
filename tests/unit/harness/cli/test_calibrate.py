"""`decodebench calibrate`: what the user writes, and what is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import backends
from backends.checkpoints.models import BUNDLED
from backends.early_exit.calibration.files import open_calibration
from harness.cli import calibrate as cli_calibrate
from harness.core.errors import UserError
from tests.support.exits.fake_exits import Opener

ASKED: dict[str, Any] = {
    "model": "demo",
    "measure": "state",
    "workload": "gsm8k, xsum",
    "risk": "exact",
    "target": 0.6,
    "rows": 40,
    "grid": "0.2,0.95, 0.7",
    "dtype": "float32",
}


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Opener:
    opener = Opener()
    monkeypatch.setattr(backends, "open_backend", opener)
    return opener


def test_every_threshold_has_a_line_and_the_statement_comes_last(
    engines: Opener,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli_calibrate, "EVERY_S", 0.0)
    out = tmp_path / "c.json"
    cli_calibrate.calibrate(**ASKED, out=out, layers=["1,3"], whole_curve=True)
    assert engines.opened[0].options["layers"] == [1, 3]
    found = open_calibration(out, BUNDLED["demo"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("full model: 1 of 80")
    assert "threshold 0.7: 80 of 80  0 s left at this threshold" in lines
    table = lines[lines.index(cli_calibrate.HEADER) + 1 :]
    shown = [line.split()[0] for line in table if line[0] == " "]
    assert shown == ["0.95", "0.7", "0.2"]
    assert [line.endswith("(not tested)") for line in table if line[0] == " "] == [
        not point.tested for point in found.curve
    ]
    assert lines[-4] == "xsum: the full model's answers have at most 512 tokens, which cut 0.0%"
    assert lines[-3] == found.statement
    assert lines[-2].endswith("Layers checked: 1, 3.")
    assert lines[-1] == f"calibration: {out}"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"grid": "0.9;0.8"}, "--grid: expected numbers such as 0.9,0.8,0.7, got '0.9;0.8'"),
        ({"grid": ""}, "--grid: expected numbers"),
        ({"layers": ["0,2"]}, "--layers: no exit after layer 0: expected 1 to 7"),
        ({"layers": ["8"]}, "--layers: no exit after layer 8: expected 1 to 7"),
        ({"layers": ["two"]}, "--layers: expected numbers"),
        ({"dtype": "float8"}, "--dtype: unknown dtype 'float8'"),
        ({"option": ["kv_cache_gib"]}, "--option: expected NAME=VALUE, got 'kv_cache_gib'"),
        ({"option": ["engine={a: "]}, "--option: engine: not readable as YAML: '{a: '"),
        ({"option": ["max_model_len=1.5"]}, "option 'max_model_len': expected int, got 1.5"),
        ({"workload": ""}, "unknown workload ''"),
        ({"model": "dmo", "layers": ["1"]}, "did you mean 'demo'?"),
    ],
)
def test_bad_input_is_one_line(
    engines: Opener, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    with pytest.raises(UserError) as refused:
        cli_calibrate.calibrate(**ASKED | change, out=tmp_path / "c.json")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert engines.opened == []


def test_warnings_are_printed_as_such(
    engines: Opener,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backends, "warnings", lambda *_: ["not what you meant"])
    cli_calibrate.calibrate(**ASKED, out=tmp_path / "c.json")
    assert capsys.readouterr().err == "warning: not what you meant\n"
