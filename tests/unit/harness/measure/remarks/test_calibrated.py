"""What a calibration says of its rows, held against a trial's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from harness.core.files import sha256
from harness.core.nouns import BackendInfo, Measured, Workload
from harness.measure.remarks.calibrated import calibrated_otherwise
from tests.support.harness.sessions import make_trial

INFO = BackendInfo("own-early-exit", "1", "re-implementation", {}, False)
OWN: dict[str, Any] = {"source": "bundled"}


def remark(data: dict[str, Any], source: str = "bundled", **options: Any) -> str:
    """The line without what every one begins with; empty where there is none."""
    trial = dataclasses.replace(
        make_trial(requests=100), workload=Workload("gsm8k", source, None, options)
    )
    measured = Measured(calibration_limits={"gsm8k": None}, calibration_data={"gsm8k": data})
    found = calibrated_otherwise(trial, dataclasses.replace(INFO, measured=measured))
    assert len(found) < 2
    begins = "calibrated-otherwise: the thresholds' calibration is of "
    assert all(line.startswith(begins) for line in found)
    return found[0].removeprefix(begins) if found else ""


def test_rows_of_another_source_are_told() -> None:
    assert remark(OWN) == ""
    assert remark(OWN, "hub") == "source bundled, and not of hub"
    assert remark({"source": "hub"}, "rows.jsonl") == "source hub, and not of rows.jsonl"


def test_a_file_is_known_by_its_content(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text("one")
    second.write_text("two")
    told = {"source": str(first), "sha256": sha256(first)}
    assert remark(told, str(first)) == ""
    assert remark(told, str(second)).endswith(f"and not of {second}")
    assert sha256(first)[:12] in remark(told, str(second))
    second.write_text("one")
    assert remark(told, str(second)) == "", "a copy under another name"
    first.write_text("changed")
    assert remark(told, str(first)) != ""
    assert remark(told, str(tmp_path / "none.jsonl")) != ""


def test_a_folder_is_known_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = {"source": str(tmp_path / "rows")}
    assert remark(told, "rows") == ""
    assert remark(told, "others") == f"source {tmp_path / 'rows'}, and not of others"


def test_options_that_choose_or_cut_rows_are_told() -> None:
    cut = {**OWN, "options": {"max_article_tokens": 512}}
    assert remark(cut, max_article_tokens=512) == ""
    assert remark(cut) == "max_article_tokens 512, and not of unset"
    assert remark(OWN, mix="80:20") == "mix unset, and not of 80:20"
    assert remark(OWN, split="train") == ""
    assert remark(OWN, split="validation") == "split train, and not of validation"
    assert remark(OWN, scorer="contains") == "", "it decides no answer"


def test_rows_of_another_data_set_are_told() -> None:
    assert remark({**OWN, "rows": "mbpp"}) == "rows of mbpp in its form, and not of gsm8k"
