"""Training of exit heads: what is refused, in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from harness.core.errors import UserError
from tests.support.engine.tiny_heads import StandInKillError, killer, load_all, train
from tests.support.harness.command import decodebench


def refusal(model: str | Path, out: Path, **changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        train(Path(model), out, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"workloads": ["gsm9k"]}, "unknown workload 'gsm9k'; did you mean 'gsm8k'"),
    ({"workloads": ["gsm8k", "gsm8k"]}, "'gsm8k' is named twice"),
    ({"workloads": []}, "none is named"),
    ({"layers": "0"}, "no exit after layer 0: expected 1 to 3 (the model has 4 layers)"),
    ({"layers": "4"}, "no exit after layer 4"),
    ({"layers": "1,2,1"}, "layer 1 is named twice"),
    ({"layers": "1;2"}, "expected numbers such as 2,4,6 or all, got '1;2'"),
    ({"kind": "fulll"}, "unknown kind 'fulll'; did you mean 'full'?"),
    ({"rows": 1}, "expected at least 2"),
    ({"rate": float("nan")}, "--lr: expected a positive number, got nan"),
    ({"rate": float("inf")}, "--lr: expected a positive number, got inf"),
    ({"epochs": 0}, "--epochs: expected at least 1, got 0"),
    ({"batch": -2}, "--batch: expected at least 1, got -2"),
    ({"source": "nowhere"}, "source 'nowhere' does not exist"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[m for _, m in BAD])
def test_bad_input_is_one_line_and_leaves_no_folder(
    model: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    assert message in refusal(model, tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    assert "did you mean 'demo'?" in refusal("demoo", tmp_path / "out")


def test_rows_that_do_not_fit_are_no_rows(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(
        json.dumps(config | {"max_position_embeddings": 280})
    )
    message = refusal(tmp_path / "model", tmp_path / "out")
    assert "workload gsm8k: no rows to train on: of 8 prompts 0 fit into the model's 280" in message


def test_weights_that_are_not_numbers_are_named(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "model")
    tensors = load_all(model / "model.safetensors")
    tensors["model.layers.2.mlp.up_proj.weight"][3, 4] = float("nan")
    save_file(tensors, tmp_path / "model" / "model.safetensors")
    message = refusal(tmp_path / "model", tmp_path / "out")
    assert "model.layers.2.mlp.up_proj.weight" in message


def test_a_folder_of_other_heads_is_refused(model: Path, trained: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(model, tmp_path / "model"))
    tensors = load_all(model / "model.safetensors")
    tensors["model.norm.weight"] *= 2
    save_file(tensors, other / "model.safetensors")
    assert "trained for another checkpoint" in refusal(other, trained)
    assert "the run begun there has --lr 0.003, this one --lr 0.001; choose" in refusal(
        model, trained, rate=1e-3
    )
    assert "the run begun there has --layers 1,3, this one --layers 1,2; choose" in refusal(
        model, trained, layers="1,2"
    )
    with pytest.raises(StandInKillError):
        train(model, tmp_path / "begun", progress=killer("answers", 0))
    assert "the run begun there has --seed 0, this one --seed 1; choose" in refusal(
        model, tmp_path / "begun", seed=1
    )
    (tmp_path / "file").write_text("")
    assert "is a file; expected a folder" in refusal(model, tmp_path / "file")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "heads.json").write_text("[]")
    assert "not written by this command" in refusal(model, tmp_path / "foreign")


def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    asked = ("--model", "demo", "--workload", "gsm8k", "--layers", "8", "--out", tmp_path / "out")
    done = decodebench("train", "heads", *asked)
    assert done.returncode == 2
    assert done.stderr == (
        "decodebench: --layers: no exit after layer 8: expected 1 to 7 (the model has 8 layers)\n"
    )


def test_no_folder_of_a_model_or_of_others_is_written_to(model: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(model, tmp_path / "model"))
    before = {path.name: path.read_bytes() for path in own.iterdir()}
    assert "is the model's own folder; expected another" in refusal(own, own)
    assert "holds config.json, which this command has not written" in refusal(model, own)
    assert {path.name: path.read_bytes() for path in own.iterdir()} == before
    mine = tmp_path / "out" / "state" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert "out/state is not of a training; choose another folder" in refusal(
        model, mine.parents[1]
    )
    assert mine.read_text() == "mine"


def test_answers_are_not_gone_on_with_for_other_rows(model: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "rows.jsonl", tmp_path / "out"

    def write(word: str) -> None:
        rows = [{"question": f"{word} {n} plus 1?", "answer": f"#### {n + 1}"} for n in range(8)]
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))

    write("What is")
    with pytest.raises(StandInKillError):
        train(model, out, source=str(source), progress=killer("hidden states, training", 0))
    kept = (out / "state" / "answers.jsonl").read_bytes()
    write("How much is")
    assert "or the prompts made of them, were others in the run begun" in refusal(
        model, out, source=str(source)
    )
    assert (out / "state" / "answers.jsonl").read_bytes() == kept
    write("What is")
    train(model, out, source=str(source))
    write("How much is")
    assert "were others in the run begun there" in refusal(model, out, source=str(source))
