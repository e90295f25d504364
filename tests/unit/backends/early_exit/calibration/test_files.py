"""Calibration files: what is written is read, and what is not right is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import models
from backends.early_exit.calibration import files as calibration
from backends.early_exit.calibration.files import (
    Calibration,
    Point,
    find_calibration,
    open_calibration,
)
from harness.core.errors import UserError

DEMO = models.BUNDLED["demo"]


@pytest.fixture(scope="module")
def example() -> Calibration:
    return Calibration(
        checkpoint=models.checksum(DEMO),
        measure="softmax",
        layers=(2, 4),
        thresholds=(0.7, 0.7),
        decay="none",
        tau=4.0,
        heads=None,
        parameters=None,
        metric="rouge_l",
        target=0.75,
        confidence=0.95,
        risk=0.2,
        bound=0.24,
        p_value=0.01,
        test="Hoeffding-Bentkus",
        prompts={"gsm8k": 50, "xsum": 50},
        prompts_checksum="ab" * 32,
        source="bundled",
        seed=7,
        batch=1,
        dtype="bfloat16",
        backend="vllm-early-exit 0.32.0",
        statement="With 95% confidence ...",
        curve=(
            Point(0.9, 0.95, 0.9, 1e-9, True, 0.4, 4.8),
            Point(0.7, 0.8, 0.76, 0.01, True, 0.5, 4.0),
        ),
    )


def test_what_is_written_is_read(example: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text(example.to_json())
    assert open_calibration(path, DEMO) == example
    assert all(len(line) < 300 for line in path.read_text().splitlines())


def change(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(content: dict[str, Any]) -> None:
        content[key] = value

    return edit


def drop(key: str) -> Callable[[dict[str, Any]], None]:
    def edit(content: dict[str, Any]) -> None:
        del content[key]

    return edit


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (change("format", 2), "format 2; this version reads 1"),
        (change("checkpoint", "0" * 64), "another checkpoint (sha256 000000000000), not for"),
        (drop("thresholds"), "'thresholds'"),
        (drop("format"), "'format'"),
        (change("layers", []), "layers [] are not ascending"),
        (change("layers", [4, 2]), "layers [4, 2] are not ascending"),
        (change("layers", 3), "not iterable"),
        (change("thresholds", [0.5]), "1 thresholds for 2 layers"),
        (change("thresholds", [0.5, "x"]), "thresholds[1]: expected a number between 0 and 1"),
        (change("thresholds", [0.5, 1.5]), "thresholds[1]: expected a number between 0 and 1"),
        (change("thresholds", [0.5, float("nan")]), "thresholds[1]: expected a number"),
        (change("thresholds", [0.5, True]), "thresholds[1]: expected a number"),
        (change("measure", "sofmax"), "did you mean 'softmax'?"),
        (change("decay", "cosine"), "decay 'cosine'"),
        (change("metric", None), "metric None"),
        (change("target", -1), "target: expected"),
        (change("tau", -2.0), "tau: expected"),
        (change("statement", 5), "statement: expected text"),
        (change("batch", "<b>"), "batch: expected a number from 1, got '<b>'"),
        (change("batch", 0), "batch: expected a number from 1"),
        (change("dtype", 3), "dtype: expected text"),
        (change("curve", [{"threshold": 1}]), "missing"),
        (change("prompts", 12), "not iterable"),
        (change("earlier_choices", -1), "earlier_choices: expected a count, got -1"),
        (change("earlier_choices", "2"), "earlier_choices: expected a count, got '2'"),
        (change("workloads", {"gsm8k": {"cut": 0.0}}), "'max_new_tokens'"),
        (change("workloads", {"gsm8k": {"max_new_tokens": "9"}}), "workloads: gsm8k: expected num"),
        (change("workloads", [1]), "cannot convert"),
        (change("extra", 1), "unexpected keyword argument 'extra'"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(
    example: Calibration, tmp_path: Path, edit: Callable[[dict[str, Any]], None], told: str
) -> None:
    content = json.loads(example.to_json())
    edit(content)
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError) as refused:
        open_calibration(path, DEMO)
    assert str(path) in str(refused.value)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "[1]", "{", "null", "3", "[" * 99999])
def test_what_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"x\.json: not readable"):
        open_calibration(path, DEMO)


def test_a_name_is_a_word_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: Calibration
) -> None:
    monkeypatch.setattr(calibration, "BUNDLED", tmp_path)
    assert find_calibration("auto", "softmax", DEMO) is None
    bundled = tmp_path / "calibration-softmax.json"
    bundled.write_text(example.to_json())
    assert find_calibration("auto", "softmax", DEMO) == bundled
    assert find_calibration("auto", "state", DEMO) is None
    assert find_calibration("auto", "softmax", tmp_path) is None
    assert find_calibration("none", "softmax", DEMO) is None
    assert find_calibration(str(bundled), "softmax", DEMO) == bundled
    with pytest.raises(UserError, match="no file 'autos'; did you mean 'auto'"):
        find_calibration("autos", "softmax", DEMO)
    with pytest.raises(UserError, match="is no file"):
        find_calibration(str(tmp_path), "softmax", DEMO)


def test_settings_that_differ_are_told(example: Calibration) -> None:
    assert example.differs_from(layers=(2, 4), tau=1.0) is None
    told = example.differs_from(layers=(2, 4, 6))
    assert told == "calibrated with layers 2, 4, not 2, 4, 6"
    told = example.differs_from(layers=(2, 4), decay="calm")
    assert told == "calibrated with decay none, not calm"
    told = example.differs_from(layers=(2, 4), parameters="12ab" * 16)
    assert told == "calibrated with parameters None, not 12ab12ab12ab"
    decaying = replace(example, decay="calm")
    assert decaying.differs_from(layers=(2, 4), decay="calm") is None
    told = decaying.differs_from(layers=(2, 4), decay="calm", tau=1.0)
    assert told == "calibrated with decay_tau 4.0, not 1.0"


def test_another_dtype_differs_where_it_is_given(example: Calibration) -> None:
    assert example.differs_from(layers=(2, 4), dtype="bfloat16") is None
    told = example.differs_from(layers=(2, 4), dtype="float32")
    assert told == "calibrated with dtype bfloat16, not float32"


def test_files_from_before_choices_were_counted_are_read(
    example: Calibration, tmp_path: Path
) -> None:
    content = json.loads(example.to_json())
    del content["earlier_choices"], content["workloads"]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(content))
    assert open_calibration(path, DEMO) == example
