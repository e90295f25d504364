"""Weights whose training was stopped: they are used, and the user is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import backends
from harness.core.nouns import Model

TOLD = "its training was stopped before its end; the same 'decodebench train' command goes on"


@pytest.mark.parametrize(
    ("backend", "kind", "report", "options"),
    [
        ("adadecode", "trained", "heads.json", lambda folder: {"heads": folder}),
        (
            "own-early-exit",
            "classified",
            "classifier.json",
            lambda folder: {"measure": "classifier", "classifier": folder, "calibration": "none"},
        ),
    ],
)
def test_weights_of_a_stopped_training_are_warned_of(
    backend: str,
    kind: str,
    report: str,
    options: Any,
    model: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    own = Path(shutil.copytree(request.getfixturevalue(kind), tmp_path / "own"))
    asked = Model(str(model), dtype="float32")
    assert not any(TOLD in line for line in backends.warnings(backend, asked, options(str(own))))
    about = json.loads((own / report).read_text())
    (own / report).write_text(json.dumps(about | {"finished": False}))
    (line,) = [x for x in backends.warnings(backend, asked, options(str(own))) if TOLD in x]
    assert line.startswith(f"{own}: ")


def test_draft_heads_too(tmp_path: Path) -> None:
    (tmp_path / "draft_head.json").write_text('{"finished": false}')
    asked = [tmp_path / "config.json", tmp_path / "model.safetensors"]
    (line,) = backends._half_trained(asked)
    assert TOLD in line
