"""Training of the exit classifier: what is refused, in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from harness.core.errors import UserError
from tests.support.engine import tiny_heads
from tests.support.engine.tiny_classifier import train
from tests.support.engine.tiny_heads import StandInKillError, killer, load_all
from tests.support.harness.command import refused

BOTH = ["gsm8k", "humaneval"]


def refusal(model: str | Path, out: Path, **changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        train(model, out, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_model_without_a_layer_to_exit_at(model: Path, tmp_path: Path) -> None:
    shallow = Path(shutil.copytree(model, tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    (shallow / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    message = refusal(shallow, tmp_path / "out")
    assert message == "--model: a model of 1 layer has none to exit at"
    assert not (tmp_path / "out").exists()


def test_a_model_whose_layers_always_agree_teaches_nothing(model: Path, tmp_path: Path) -> None:
    """Layers that add nothing: every state is the embedding."""
    idle = Path(shutil.copytree(model, tmp_path / "model"))
    tensors = load_all(model / "model.safetensors")
    for name, tensor in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensor.zero_()
    save_file(tensors, idle / "model.safetensors")
    message = refusal(idle, tmp_path / "out", rows=2)
    assert "has the last layer's top token at all or at none of" in message


def test_a_folder_of_something_else_is_refused(
    model: Path, classified: Path, trained: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(model, tmp_path / "model"))
    tensors = load_all(model / "model.safetensors")
    tensors["model.norm.weight"] *= 2
    save_file(tensors, other / "model.safetensors")
    assert "trained for another checkpoint" in refusal(other, classified)
    assert "the run begun there has --lr 0.005, this one --lr 0.001; choose" in refusal(
        model, classified, workloads=BOTH, rate=1e-3
    )
    assert "has --workload gsm8k,humaneval, this one --workload gsm8k;" in refusal(
        model, classified
    )
    assert "kind was lightweight in the run begun there, expected classifier" in refusal(
        model, trained
    )
    with pytest.raises(UserError, match="kind was classifier in the run begun there"):
        tiny_heads.train(model, classified)
    with pytest.raises(StandInKillError):
        tiny_heads.train(model, tmp_path / "begun", layers="all", progress=killer("answers", 0))
    assert "kind was lightweight" in refusal(model, tmp_path / "begun")
    (tmp_path / "file").write_text("")
    assert "is a file; expected a folder" in refusal(model, tmp_path / "file")


def test_weights_that_are_not_numbers_are_named(model: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(model, tmp_path / "model"))
    tensors = load_all(model / "model.safetensors")
    tensors["model.layers.2.mlp.up_proj.weight"][3, 4] = torch.inf
    save_file(tensors, broken / "model.safetensors")
    assert "model.layers.2.mlp.up_proj.weight" in refusal(broken, tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workload", "gsm9k"], "--workload: unknown workload 'gsm9k'; did you mean 'gsm8k'?"),
        (
            ["--workload", "gsm8k", "--layers", "8"],
            "--layers: no exit after layer 8: expected 1 to 7",
        ),
        (["--workload", "gsm8k", "--kind", "full"], "No such option: --kind"),
    ],
)
def test_the_command_says_it_in_one_line(
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    asked = ("train", "classifier", "--model", "demo", *arguments, "--out", "out")
    told = refused(*asked, cwd=tmp_path)
    assert told.count("\n") == 1
    assert message in told
