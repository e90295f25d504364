"""Exit heads: what is learnt, from which text, what survives a kill, what the report says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from backends import models
from backends.training import checkpoint, heads, heads_display
from backends.training.heads_data import read_prompts
from backends.training.heads_model import architecture_of
from backends.training.heads_recipe import HeadRecipe
from backends.training.llama import Llama, Shape
from harness.core import UserError

TINY = {"layers": 4, "width": 32, "feed_forward": 48, "heads": 2, "kv_heads": 1, "head_dim": 16}
VOCABULARY = 1280
SMALL: dict[str, Any] = {"layers": "1,3", "rows": 8, "epochs": 6, "batch": 3, "rate": 3e-3}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model in float32 with the demo's tokenizer, loud enough to have opinions."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(3)
    llama = Llama(Shape(VOCABULARY, **TINY))
    with torch.no_grad():
        for parameter in llama.parameters():
            if parameter.dim() == 2:
                parameter.mul_(12)
    checkpoint.export(llama, models.BUNDLED["demo"], folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"torch_dtype": "float32", "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(load_all(folder / "model.safetensors"), folder / "model.safetensors")
    return folder


def load_all(path: Path) -> dict[str, Tensor]:
    return {name: tensor.float() for name, tensor in load_file(path).items()}


def train(model: Path, out: Path, **changes: Any) -> dict[str, Any]:
    names = changes.pop("workloads", ["gsm8k"])
    return heads.train_heads(str(model), names, out, **SMALL | changes)


@pytest.fixture(scope="module")
def trained(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("heads")
    assert train(model, out)["finished"]
    return out


def refusal(model: str | Path, out: Path, **changes: Any) -> str:
    with pytest.raises(UserError) as caught:
        train(Path(model), out, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def same(one: Path, other: Path) -> bool:
    first, second = (load_file(folder / "heads.safetensors") for folder in (one, other))
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def test_the_folder_is_as_decoders_expect_it(trained: Path, model: Path) -> None:
    content = json.loads((trained / "heads.json").read_text())
    assert content["format"] == 1
    assert content["checkpoint"] == models.checksum(model)
    assert (content["layers"], content["kind"]) == ([1, 3], "lightweight")
    assert (content["width"], content["vocabulary"]) == (32, VOCABULARY)
    assert content["workloads"] == ["gsm8k"]
    tensors = load_file(trained / "heads.safetensors")
    positions = content["report"]["held_out"]["positions"]
    shapes = {name: (tuple(t.shape), t.dtype) for name, t in tensors.items()}
    assert shapes == {
        **{f"layer.{layer}.transform": ((32, 32), torch.float32) for layer in (1, 3)},
        **{f"layer.{layer}.probe": ((33,), torch.float32) for layer in (1, 3)},
        "token_order": ((VOCABULARY,), torch.int32),
        "trace.confidence": ((positions, 2), torch.float16),
        "trace.agrees": ((positions, 2), torch.uint8),
        "trace.confidence_original": ((positions, 2), torch.float16),
        "trace.agrees_original": ((positions, 2), torch.uint8),
        "trace.start": ((2,), torch.int32),
    }
    assert sorted(tensors["token_order"].tolist()) == list(range(VOCABULARY))
    assert tensors["trace.start"].tolist() == [0, positions]
    assert [path.name for path in sorted(trained.iterdir())] == ["heads.json", "heads.safetensors"]


@pytest.mark.parametrize("kind", ["lightweight", "full"])
def test_training_brings_held_out_kl_down_at_every_layer(
    model: Path, tmp_path: Path, kind: str
) -> None:
    content = train(model, tmp_path, kind=kind, rows=12)
    for figures in content["report"]["layers"].values():
        assert figures["all"]["trained"]["kl"] < 0.9 * figures["all"]["original"]["kl"]
    suffix, rows = ("head", VOCABULARY) if kind == "full" else ("transform", 32)
    assert load_file(tmp_path / "heads.safetensors")[f"layer.3.{suffix}"].shape == (rows, 32)


def greedy(model: Any, prompt: list[int], limit: int, stop: int) -> list[int]:
    ids = list(prompt)
    while len(ids) - len(prompt) < limit and (len(ids) == len(prompt) or ids[-1] != stop):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids


@torch.no_grad()
def test_the_report_equals_one_worked_out_with_transformers(model: Path, trained: Path) -> None:
    """The held-out prompt is answered token by token, alone and without a cache, and every figure
    is computed from transformers' own hidden states: padding, normed states, the choice of
    positions and each statistic are checked at once."""
    from transformers import LlamaForCausalLM

    recipe = HeadRecipe("", (1, 3), ("gsm8k",), rows=8)
    prompts = read_prompts(recipe, models.load_tokenizer(model), 512)
    (prompt,) = [prompt for prompt in prompts if prompt.held_out]
    reference = LlamaForCausalLM.from_pretrained(str(model), dtype=torch.float32)
    text = greedy(reference, prompt.ids, prompt.limit, models.stop_ids(model)[0])
    states = reference(torch.tensor([text]), output_hidden_states=True).hidden_states
    span = slice(len(prompt.ids), len(text) - 1)
    head, norm = reference.lm_head.weight, reference.model.norm
    final = (states[4][0, span] @ head.T).log_softmax(-1)  # transformers has normed the last one
    tensors = load_file(trained / "heads.safetensors")
    report = json.loads((trained / "heads.json").read_text())["report"]["layers"]
    for column, layer in enumerate((1, 3)):
        x = norm(states[layer][0, span])
        for kind, transform in (
            ("trained", tensors[f"layer.{layer}.transform"]),
            ("original", torch.eye(32)),
        ):
            own = (x @ transform.T @ head.T).log_softmax(-1)
            confidence, token = own.exp().max(-1)
            agrees = token == final.argmax(-1)
            figures = report[str(layer)]["all"][kind]
            kl = (final.exp() * (final - own)).sum(-1).mean()
            assert figures["kl"] == pytest.approx(float(kl), rel=1e-3)
            assert figures["agreement"] == pytest.approx(float(agrees.float().mean()), abs=1e-4)
            for gamma, over in figures["over"].items():
                share = float((confidence > float(gamma)).float().mean())
                assert over["share"] == pytest.approx(share, abs=1e-4)
            edges = torch.histc(confidence, bins=10, min=0, max=1)
            assert figures["histogram"]["count"] == edges.int().tolist()
            suffix = "" if kind == "trained" else "_original"
            torch.testing.assert_close(
                tensors[f"trace.confidence{suffix}"][:, column].float(),
                confidence,
                atol=1e-3,
                rtol=1e-3,
            )
            assert torch.equal(tensors[f"trace.agrees{suffix}"][:, column].bool(), agrees)


class KilledError(Exception):
    """Stands for a kill: nothing in the project catches it."""


def killer(stage: str, done: int) -> Callable[[heads.Progress], None]:
    def die(progress: heads.Progress) -> None:
        if (progress.stage, progress.done) == (stage, done):
            raise KilledError

    return die


def test_a_killed_run_goes_on_to_the_same_heads(model: Path, trained: Path, tmp_path: Path) -> None:
    """Killed before the answers, in the hidden states and between epochs, each time
    with a file half written: the heads are, bit for bit, those of a run left alone."""
    for stage, done in (("answers", 0), ("hidden states, held-out", 0), ("epochs", 4)):
        with pytest.raises(KilledError):
            train(model, tmp_path, progress=killer(stage, done), save_every_s=0)
        (tmp_path / "state" / "fit.tmp").write_bytes(b"half a state")
        with (tmp_path / "state" / "answers.jsonl").open("a") as file:
            file.write("[[0, [1, 2")
    stages: list[str] = []
    content = train(model, tmp_path, progress=lambda p: stages.append(f"{p.stage} {p.done}"))
    assert stages == ["epochs 4", "epochs 5", "epochs 6"]
    assert same(tmp_path, trained)
    assert content["report"]["layers"] == train(model, trained)["report"]["layers"]


def test_time_that_is_up_leaves_heads_to_use_and_a_run_to_go_on_with(
    model: Path, trained: Path, tmp_path: Path
) -> None:
    assert train(model, tmp_path, minutes=0.0) == {"finished": False}
    assert heads_display.report_lines({"finished": False})[0].startswith("stopped before")
    with pytest.raises(KilledError):
        train(model, tmp_path, progress=killer("epochs", 1))
    content = train(model, tmp_path, minutes=0.0)
    assert content["finished"] is False
    assert content["report"]["training"]["ended"] == "time is up"
    assert "stopped; the same command goes on from here" in heads_display.report_lines(content)
    assert train(model, tmp_path)["finished"] is True
    assert same(tmp_path, trained)


def test_training_that_gains_nothing_stops_early(model: Path, tmp_path: Path) -> None:
    content = train(model, tmp_path, rate=1e-9, epochs=40, patience=3)
    training = content["report"]["training"]
    assert (training["ended"], training["epochs"]) == ("early stop", 3)
    assert content["finished"] is True


def test_finished_heads_are_not_trained_again(model: Path, trained: Path) -> None:
    before = (trained / "heads.safetensors").stat().st_mtime_ns
    stages: list[heads.Progress] = []
    content = train(model, trained, progress=stages.append)
    assert content == json.loads((trained / "heads.json").read_text())
    assert (stages, (trained / "heads.safetensors").stat().st_mtime_ns) == ([], before)
    lines = heads_display.report_lines(content)
    own = content["report"]["layers"]["3"]["all"]["trained"]["agreement"]
    assert f"{own:.3f}" in lines[-1]


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
    ({"rate": float("nan")}, "--lr: expected a positive number"),
    ({"epochs": 0}, "--epochs: expected at least 1, got 0"),
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
    assert "heads of another checkpoint" in refusal(other, trained)
    assert "rate was 0.003 in the run begun there, expected 0.001" in refusal(
        model, trained, rate=1e-3
    )
    assert "layers was 1,3 in the run begun there, expected 1,2" in refusal(
        model, trained, layers="1,2"
    )
    with pytest.raises(KilledError):
        train(model, tmp_path / "begun", progress=killer("answers", 0))
    assert "seed was 0 in the run begun there, expected 1" in refusal(
        model, tmp_path / "begun", seed=1
    )
    (tmp_path / "file").write_text("")
    assert "is a file; expected a folder" in refusal(model, tmp_path / "file")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "heads.json").write_text("[]")
    assert "not written by this command" in refusal(model, tmp_path / "foreign")


def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "harness.cli", "train", "heads", "--model", "demo"]
    command += ["--workload", "gsm8k", "--layers", "8", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "decodebench: --layers: no exit after layer 8: expected 1 to 7 (the model has 8 layers)\n"
    )


def test_the_demo_models_shape_gives_the_papers_quarters() -> None:
    from backends.training.heads_recipe import parse_layers

    assert architecture_of(models.BUNDLED["demo"]).layers == 8
    assert parse_layers(None, 8) == (2, 4, 6)
    assert parse_layers(None, 32) == (8, 16, 24)
    assert parse_layers(None, 2) == (1,)
    assert parse_layers("all", 4) == (1, 2, 3)
