"""A model of the hub by its revision, in trainings and calibrations."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import models
from backends.checkpoints.exit_heads import open_folder
from backends.early_exit.calibration.calibrate import calibrate
from backends.early_exit.calibration.settings import Settings
from backends.training.sublayers.search import find_sublayers
from harness.core.errors import UserError
from harness.core.nouns import Model
from tests.support.engine.tiny_heads import train


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The revisions of which a checkpoint was looked for."""
    found: list[str | None] = []
    resolve = models.resolve

    def noted(model: Model, **more: Any) -> Path:
        found.append(model.revision)
        return resolve(model, **more)

    monkeypatch.setattr(models, "resolve", noted)
    return found


def test_the_revision_is_looked_for_stored_and_named_in_refusals(
    model: Path, tmp_path: Path, asked: list[str | None]
) -> None:
    out = tmp_path / "out"
    content = train(model, out, revision="v1", epochs=1)
    assert set(asked) == {"v1"}
    assert content["recipe"]["revision"] == "v1"
    assert train(model, out, revision="main", epochs=1) == content, "the checksum decides"
    other = Path(shutil.copytree(model, tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"rope_theta": 12345.0}))
    with pytest.raises(UserError, match=r"another checkpoint \([0-9a-f]{12} of revision v1, the m"):
        train(other, out, epochs=1)
    with pytest.raises(UserError, match=r"\(sha256 [0-9a-f]{12} of revision v1\), not for"):
        open_folder(out, other)


def test_searches_and_calibrations_take_one_too(
    model: Path, tmp_path: Path, asked: list[str | None]
) -> None:
    with pytest.raises(UserError, match="workload"):
        find_sublayers(str(model), ["gsm8k"], tmp_path, revision="v2", source="nowhere")
    settings = Settings(
        str(model), "state", ("gsm8k",), revision="v3", source="nowhere", backend="own-early-exit"
    )
    with pytest.raises(UserError, match="nowhere"):
        calibrate(settings, tmp_path / "c.json")
    assert set(asked) == {"v2", "v3"}
