"""Training of the demo model and its draft: what is refused, and nothing lost by it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from backends.training.rows.tokenizer import train_tokenizer
from backends.training.small_models import demo, draft, run
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
