"""Exit heads: what is learnt, from which text, what survives a kill, what the report says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from backends.checkpoints import models
from backends.checkpoints.classifier import open_classifier
from backends.seen import joined_marks
from backends.training.exits import run as exit_run
from backends.training.exits.backbone import architecture_of
from backends.training.exits.data import read_prompts
from backends.training.exits.recipe import ExitRecipe
from backends.training.heads import display as heads_display
from tests.support.engine import checkpoints, tiny_classifier
from tests.support.engine.tiny_heads import VOCABULARY, StandInKillError, greedy, killer, train
from tests.support.tiny_llama import write_tiny_llama


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
        "token_order": ((VOCABULARY,), torch.int32),
        "trace.confidence": ((positions, 2), torch.float16),
        "trace.agrees": ((positions, 2), torch.uint8),
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


@torch.no_grad()
def test_the_report_equals_one_worked_out_with_transformers(model: Path, trained: Path) -> None:
    """The held-out prompt is answered token by token, alone and without a cache, and every figure
    is computed from transformers' own hidden states: padding, normed states, the choice of
    positions and each statistic are checked at once."""
    from transformers import LlamaForCausalLM

    recipe = ExitRecipe("", (1, 3), ("gsm8k",), rows=8)
    prompts = read_prompts(recipe, models.load_tokenizer(model), 512)
    told = json.loads((trained / "heads.json").read_text())
    said = heads_display.report_lines(told)
    assert "by which each layer's best epoch was chosen" in said[1]
    assert told["prompt_marks"] == joined_marks(prompt.ids for prompt in prompts)
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
            if kind == "trained":
                traced = tensors["trace.confidence"][:, column].float()
                torch.testing.assert_close(traced, confidence, atol=1e-3, rtol=1e-3)
                assert torch.equal(tensors["trace.agrees"][:, column].bool(), agrees)


@pytest.mark.parametrize("family", ["Qwen2", "Qwen3"])
def test_other_families_and_untied_heads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    """Biases, norms of queries and a head of its own; prompts without a chat template. Heads,
    and a classifier on the same answers."""
    write_tiny_llama(tmp_path / "model")  # for its tokenizer
    shape = {"model": family, "vocab_size": 300, "max_position_embeddings": 1024}
    monkeypatch.setitem(checkpoints.SHAPES, "small", shape)
    untied = checkpoints.write_checkpoint(tmp_path / "model", "small")
    assert untied.lm_head.weight.data_ptr() != untied.model.embed_tokens.weight.data_ptr()
    content = train(tmp_path / "model", tmp_path / "out", layers="1,2", rows=4, epochs=4)
    for figures in content["report"]["layers"].values():
        assert figures["all"]["trained"]["kl"] < 0.95 * figures["all"]["original"]["kl"]
    out = tmp_path / "classifier"
    content = tiny_classifier.train(tmp_path / "model", out, rows=4, epochs=4)
    losses = content["report"]["training"]["train_loss"]
    assert losses[-1] < losses[0]
    assert open_classifier(out, tmp_path / "model").weight.shape[0] == 2


def test_a_killed_run_goes_on_to_the_same_heads(model: Path, trained: Path, tmp_path: Path) -> None:
    """Killed before the answers, in the hidden states and between epochs, each time
    with a file half written: the heads are, bit for bit, those of a run left alone."""
    for stage, done in (("answers", 0), ("hidden states, held-out", 0), ("epochs", 4)):
        with pytest.raises(StandInKillError):
            train(model, tmp_path, progress=killer(stage, done), save_every_s=0)
        (tmp_path / "state" / ".fit.pt.4194305-0.tmp").write_bytes(b"half a state")
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
    with pytest.raises(StandInKillError):
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
    stages: list[exit_run.StageProgress] = []
    content = train(model, trained, progress=stages.append)
    assert content == json.loads((trained / "heads.json").read_text())
    assert (stages, (trained / "heads.safetensors").stat().st_mtime_ns) == ([], before)
    lines = heads_display.report_lines(content)
    own = content["report"]["layers"]["3"]["all"]["trained"]["agreement"]
    assert f"{own:.3f}" in lines[-1]


def test_the_demo_models_shape_gives_the_papers_quarters() -> None:
    from backends.training.heads.recipe import parse_layers

    assert architecture_of(models.BUNDLED["demo"]).layers == 8
    assert parse_layers(None, 8) == (2, 4, 6)
    assert parse_layers(None, 32) == (8, 16, 24)
    assert parse_layers(None, 2) == (1,)
    assert parse_layers("all", 4) == (1, 2, 3)


def test_layers_that_learnt_nothing_are_named(model: Path, trained: Path, tmp_path: Path) -> None:
    content = train(model, tmp_path, rate=30.0, epochs=2, patience=1)
    lines = heads_display.report_lines(content)
    assert lines[-2:] == [heads_display.nothing_learnt(layer) for layer in ("1", "3")]
    assert lines[-1].startswith(
        "layer 3: no epoch did better on the held-out rows than the original"
    )
    assert (content["report"]["training"]["epochs"], content["recipe"]["patience"]) == (1, 1)
    sound = heads_display.report_lines(json.loads((trained / "heads.json").read_text()))
    assert not any("no epoch did better" in line for line in sound)
