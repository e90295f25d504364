"""Training of the demo model and its draft: what is refused, and nothing lost by it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from backends.training.rows.tokenizer import train_tokenizer
from backends.training.small_models import checkpoint, demo, draft, run
from harness.core.errors import UserError
from tests.unit.backends.training.small_models.test_training import TINY, recipe


@pytest.fixture
def out(tmp_path: Path) -> Path:
    train_tokenizer(tmp_path / "model", rows_per_workload=60)
    return tmp_path / "model"


def test_no_state_is_gone_on_from_for_another_target_or_fewer_steps(
    out: Path, tmp_path: Path
) -> None:
    demo.train_demo(out, recipe=recipe(steps=2), threads=1)
    with pytest.raises(UserError, match=r"--steps: 1, and the run begun .* has taken 2; expected"):
        demo.train_demo(out, recipe=recipe(steps=1), threads=1)
    small = recipe(steps=1, shape=TINY | {"layers": 1}, prompt_weight=0.0)
    made = tmp_path / "draft"
    assert draft.train_draft(out, made, recipe=small, threads=1)
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    demo.train_demo(out, recipe=recipe(steps=3), threads=1)
    with pytest.raises(UserError, match="begun with another --target; choose another folder"):
        draft.train_draft(out, made, recipe=small, threads=1)
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before


def test_no_checkpoint_is_written_over_and_no_other_llama_taught_from(
    out: Path, tmp_path: Path
) -> None:
    demo.train_demo(out, recipe=recipe(steps=1), threads=1)
    with pytest.raises(UserError, match="is the model's own folder; expected another"):
        draft.train_draft(out, out, threads=1)
    (out / run.STATE).unlink()
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(UserError, match=r"holds config\.json, which this command has not written"):
        demo.train_demo(out, recipe=recipe(steps=1), threads=1)
    config = json.loads((out / "config.json").read_text())
    for changes, said in (
        ({"rope_scaling": {"factor": 8.0}}, "rope_scaling is {'factor': 8.0}"),
        ({"eos_token_id": 2}, "eos_token_id is 2"),
        ({"head_dim": None}, "head_dim is None"),
    ):
        other = Path(shutil.copytree(out, tmp_path / said[:8]))
        told = {key: value for key, value in (config | changes).items() if value is not None}
        (other / "config.json").write_text(json.dumps(told))
        with pytest.raises(UserError, match=re.escape(f"{other}/config.json: {said}; expected a")):
            draft.train_draft(other, tmp_path / "draft", threads=1)
    assert not (tmp_path / "draft").exists()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: b"hello\n",
        lambda whole: b"{}",
        lambda whole: whole[:10],
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-1],
    ],
    ids=["empty", "text", "json", "its first bytes", "its first half", "all but a byte"],
)
def test_a_state_that_is_not_whole_is_bad_input(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / run.STATE
    checkpoint.save_state(path, {"step": 3, "weights": torch.zeros(1000)})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=re.escape(f"{path}: cannot be read: expected a training")):
        checkpoint.load_state(path)


def test_a_state_for_which_memory_is_too_little_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    path = tmp_path / run.STATE
    checkpoint.save_state(path, {"step": 3})
    monkeypatch.setattr(torch, "load", load)
    with pytest.raises(RuntimeError, match="allocate"):
        checkpoint.load_state(path)
