"""What `history` prints for other programs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import results
from tests.support.harness.command import call
from tests.support.results.history_runs import write_runs


def test_json_has_the_remarks_below_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that reads it did not see that a cell had crashed."""
    folder = write_runs(tmp_path, 3)
    run = results.load(max(folder.iterdir(), key=lambda one: int(one.name.rpartition("-")[2])))
    (stored,) = [one for one in run.stored if one.record.trial.backend == "vllm"]
    run.store.write(
        dataclasses.replace(stored.record, status="failed", backend=None, generations=())
    )
    asked = ("history", folder, "--metric", "tpot_s_p50")
    assert call(monkeypatch, *asked, "--json") == 0
    remarks = json.loads(capsys.readouterr().out)["remarks"]
    lost = "gsm8k, closed c=8, demo: vllm: no tpot_s_p50 in its newest run, c002"
    assert remarks[0] == lost
    assert call(monkeypatch, *asked) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line in remarks] == remarks
