"""The http benchmark without the tools that it compares with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import http_truth
from benchmarks.support.http.tools import ALL


@pytest.fixture
def without_aiperf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = [replace(tool, program=tmp_path) for tool in ALL[:-1]]
    monkeypatch.setattr(http_truth, "ALL", [*here, replace(ALL[-1], program=tmp_path / "none")])


def test_a_tool_that_is_missing_is_left_out_by_name(
    without_aiperf: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [tool.name for tool in http_truth.choose(None)] == [tool.name for tool in ALL[:-1]]
    assert capsys.readouterr().err == "left out: AIPerf (make http-tools installs them)\n"


def test_a_tool_that_is_asked_for_must_be_there(
    without_aiperf: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        http_truth.choose(["decodebench", "AIPerf"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "not here: AIPerf (make http-tools installs them)\n"
    assert [tool.name for tool in http_truth.choose(["GuideLLM"])] == ["GuideLLM"]


def test_more_is_asked_for_until_the_rate_grows_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([100.0, 150.0, 151.0, 300.0])

    def measure(*_: Any) -> dict[str, Any]:
        return {"tok_per_s": next(rates)}

    monkeypatch.setattr(http_truth, "measure", measure)
    steps = [http_truth.TruthCase(1, 2, 3, gap_s) for gap_s in (0.004, 0.002, 0.001, 0.0005)]
    rows = http_truth.climb(ALL[0], "peak", steps, Path(), [])
    assert [row["gap_ms"] for row in rows] == [4.0, 2.0, 1.0]


def test_a_tool_that_fails_does_not_end_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: Any) -> dict[str, Any]:
        raise RuntimeError("no JSON")

    monkeypatch.setattr(http_truth, "measure", measure)
    steps = [http_truth.TruthCase(1, 2, 3, 0.004)] * 2
    (row,) = http_truth.climb(ALL[0], "peak", steps, Path(), [])
    assert (row["tool"], row["failed"]) == ("decodebench", "RuntimeError: no JSON")
