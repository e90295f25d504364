"""A folder whose report says that its training came to the end, and kills just before and after."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.training.classifier.train import train_classifier
from backends.training.drafts.train import train_drafts
from backends.training.exits.recipe import STATE
from harness.core.errors import UserError
from tests.support.engine.tiny_heads import train

NO_PROCESS = 2**22 + 1
"""More than Linux numbers."""
TRAININGS: dict[str, Callable[[Path, Path], object]] = {
    "heads": lambda model, out: train(model, out, epochs=1),
    "classifier": lambda model, out: train_classifier(str(model), ["gsm8k"], out, rows=8, epochs=1),
    "draft_head": lambda model, out: train_drafts(
        "medusa", str(model), ["gsm8k"], out, rows=8, epochs=1
    ),
}


@pytest.mark.parametrize("kind", TRAININGS)
def test_a_finished_folder_without_its_tensors_is_told_and_trained_anew_on_demand(
    model: Path, tmp_path: Path, kind: str
) -> None:
    again, out = TRAININGS[kind], tmp_path / "out"
    again(model, out)
    report = out / f"{kind}.json"
    (tensors,) = out.glob("*.safetensors")
    whole = tensors.read_bytes()
    for broken in (whole[: len(whole) // 2], None):
        tensors.write_bytes(broken) if broken is not None else tensors.unlink()
        with pytest.raises(UserError) as refused:
            again(model, out)
        assert str(refused.value).startswith(f"{report}: this training had come to its end, and")
        assert f"; remove {out} for the same command to train anew" in str(refused.value)
        assert "\n" not in str(refused.value)
    shutil.rmtree(out)
    assert again(model, out) is not None
    assert tensors.read_bytes() == whole
    assert json.loads(report.read_text())["finished"]
    assert again(model, out) == json.loads(report.read_text())


def test_a_kill_while_the_state_is_removed_leaves_a_finished_training(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(state: Path, **_: object) -> None:
        (state / "recipe.json").unlink()
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            train(model, out, epochs=1)
    assert train(model, out, epochs=1)["finished"]
    assert not (out / STATE).exists()


def test_a_kill_while_a_folder_is_claimed_leaves_it_free(model: Path, tmp_path: Path) -> None:
    left = tmp_path / STATE / f".recipe.json.{NO_PROCESS}.tmp"
    left.parent.mkdir()
    left.write_text("{")
    assert train(model, tmp_path, epochs=1)["finished"]


def test_a_strangers_temporary_files_stay(model: Path, tmp_path: Path) -> None:
    theirs = tmp_path / STATE / f".theirs.{NO_PROCESS}.tmp"
    theirs.parent.mkdir()
    theirs.write_text("half a file")
    with pytest.raises(UserError, match="state is not of a training"):
        train(model, tmp_path, epochs=1)
    assert theirs.exists()
