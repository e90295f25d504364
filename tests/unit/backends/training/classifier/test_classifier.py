"""The exit classifier: what is learnt, what survives a kill, what the report says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from backends import warnings
from backends.checkpoints import models
from backends.checkpoints.classifier import open_classifier
from backends.seen import read_marks
from backends.training.classifier import display as classifier_display
from backends.training.exits import run as exit_run
from backends.training.exits.data import read_prompts
from backends.training.exits.recipe import ExitRecipe
from harness.core.nouns import Model
from tests.support.engine.tiny_classifier import train
from tests.support.engine.tiny_heads import StandInKillError, greedy, killer

BOTH = ["gsm8k", "humaneval"]


def same(one: Path, other: Path) -> bool:
    names = ("classifier.safetensors", "classifier.json")
    first, second = ([(folder / name).read_bytes() for name in names] for folder in (one, other))
    reports = [json.loads(text) for _, text in (first, second)]
    for report in reports:
        report["report"]["training"].pop("seconds")
    return first[0] == second[0] and reports[0] == reports[1]


def test_the_folder_is_as_decoders_expect_it(classified: Path, model: Path) -> None:
    content = json.loads((classified / "classifier.json").read_text())
    assert content["format"] == 1
    assert content["checkpoint"] == models.checksum(model)
    assert (content["layers"], content["width"]) == ([1, 2, 3], 32)
    assert content["recipe"]["workloads"] == BOTH
    said = classifier_display.report_lines(content)
    assert "by which the best epoch was chosen" in said[1]
    assert len(read_marks(content["prompt_marks"])) == 2 * content["recipe"]["rows"]
    tensors = load_file(classified / "classifier.safetensors")
    shapes = {name: (tuple(t.shape), t.dtype) for name, t in tensors.items()}
    assert shapes == {"weight": ((2, 32), torch.float32), "bias": ((2,), torch.float32)}
    names = sorted(path.name for path in classified.iterdir())
    assert names == ["classifier.json", "classifier.safetensors"]
    opened = open_classifier(classified, model)
    assert torch.equal(opened.weight, tensors["weight"])
    assert (opened.layers, opened.report) == ((1, 2, 3), content["report"])


@torch.no_grad()
def plain(model: Path, workload: str, tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Labels, confidences and softmax margins [layers, n] of a workload's held-out row, by
    transformers alone: the prompt is answered token by token, without cache or padding."""
    from transformers import LlamaForCausalLM

    recipe = ExitRecipe("", (1, 2, 3), (workload,), rows=6)
    prompts = read_prompts(recipe, models.load_tokenizer(model), 512)
    (prompt,) = [prompt for prompt in prompts if prompt.held_out]
    reference = LlamaForCausalLM.from_pretrained(str(model), dtype=torch.float32)
    text = greedy(reference, prompt.ids, prompt.limit, models.stop_ids(model)[0])
    states = reference(torch.tensor([text]), output_hidden_states=True).hidden_states
    span = slice(len(prompt.ids), len(text) - 1)
    agrees, confidence, margin = [], [], []
    for layer in (1, 2, 3):
        raw = states[layer][0, span]  # transformers norms none but the last
        probabilities = reference.lm_head(reference.model.norm(raw)).softmax(-1)
        agrees.append(probabilities.argmax(-1) == torch.tensor(text[len(prompt.ids) + 1 :]))
        both = raw @ tensors["weight"].T + tensors["bias"]
        confidence.append(both.softmax(-1)[:, 1])
        top = probabilities.topk(2).values
        margin.append(top[:, 0] - top[:, 1])
    return torch.stack(agrees), torch.stack(confidence), torch.stack(margin)


def pairs_won(scores: Tensor, labels: Tensor) -> float:
    ahead = scores[labels][:, None] - scores[~labels][None]
    return float(((ahead > 0).double() + (ahead == 0).double() / 2).mean())


def test_the_report_equals_one_worked_out_with_transformers(model: Path, classified: Path) -> None:
    """Labels, choice of positions, states before the norm and every statistic at once."""
    report = json.loads((classified / "classifier.json").read_text())["report"]
    tensors = load_file(classified / "classifier.safetensors")
    found = {name: plain(model, name, tensors) for name in BOTH}
    for name in (*BOTH, "all"):
        parts = found.values() if name == "all" else [found[name]]
        agrees, confidence, margin = (torch.cat(rows, dim=1) for rows in zip(*parts, strict=True))
        for row in range(3):
            own = report["layers"][str(row + 1)][name]
            sure, right = confidence[row], agrees[row]
            assert own["positions"] == len(sure)
            assert own["agrees"] == pytest.approx(float(right.float().mean()), abs=1e-5)
            assert own["auc"] == pytest.approx(pairs_won(sure, right), abs=1e-4)
            assert own["softmax_auc"] == pytest.approx(pairs_won(margin[row], right), abs=1e-4)
            hits = (sure > 0.5) == right
            assert own["accuracy"] == pytest.approx(float(hits.float().mean()), abs=1e-5)
            halves = (hits[right].float().mean() + hits[~right].float().mean()) / 2
            assert own["balanced_accuracy"] == pytest.approx(float(halves), abs=1e-5)
            for threshold, over in own["over"].items():
                passed = sure > float(threshold)
                assert over["share"] == pytest.approx(float(passed.float().mean()), abs=1e-5)
                if passed.any():
                    share = float(right[passed].float().mean())
                    assert over["precision"] == pytest.approx(share, abs=1e-5)
                else:
                    assert over["precision"] is None
        for threshold, own in report["exits"][name].items():
            layers, good = first_passages(confidence > float(threshold), agrees)
            assert own["layers_run"] == pytest.approx(sum(layers) / len(layers), abs=1e-4)
            assert own["skipped"] == pytest.approx(1 - sum(layers) / len(layers) / 4, abs=1e-5)
            assert own["agreement"] == pytest.approx(sum(good) / len(good), abs=1e-5)


def first_passages(passed: Tensor, agrees: Tensor) -> tuple[list[int], list[bool]]:
    layers, good = [], []
    for column in range(passed.shape[1]):
        row = next((row for row in range(3) if passed[row, column]), None)
        layers.append(4 if row is None else row + 1)
        good.append(True if row is None else bool(agrees[row, column]))
    return layers, good


def test_training_brings_the_balanced_loss_down(classified: Path) -> None:
    """A layer that says nothing has a loss of ln 2, whatever the shares of the classes."""
    content = json.loads((classified / "classifier.json").read_text())
    training = content["report"]["training"]
    assert training["train_loss"][-1] < training["train_loss"][0] - 0.02 < 0.68
    assert training["best_held_out_loss"] == min(training["held_out_loss"]) < 0.69
    auc = [layer["all"]["auc"] for layer in content["report"]["layers"].values()]
    assert sum(auc) / 3 > 0.55


def test_a_run_that_is_killed_and_whose_time_is_up_goes_on_to_the_same_classifier(
    model: Path, classified: Path, tmp_path: Path
) -> None:
    """Killed before the answers, in the states, the labels and between epochs, each time with a
    file half written, and stopped in the epochs: the files are, bit for bit, those of a run left
    alone."""
    asked: dict[str, Any] = {"workloads": BOTH, "save_every_s": 0}
    stages = [("answers", 0), ("hidden states, held-out", 0), ("labels, held-out", 0)]
    for stage, done in [*stages, ("epochs", 3)]:
        with pytest.raises(StandInKillError):
            train(model, tmp_path, progress=killer(stage, done), **asked)
        assert not (tmp_path / "classifier.json").exists()
        (tmp_path / "state" / "fit.tmp").write_bytes(b"half a state")
        with (tmp_path / "state" / "answers.jsonl").open("a") as file:
            file.write("[[0, [1, 2")
    content = train(model, tmp_path, minutes=0.0, **asked)
    assert content["finished"] is False
    assert content["report"]["training"]["ended"] == "time is up"
    assert "stopped; the same command goes on from here" in classifier_display.report_lines(content)
    assert open_classifier(tmp_path, model).report == content["report"]
    seen: list[str] = []
    train(model, tmp_path, workloads=BOTH, progress=lambda p: seen.append(f"{p.stage} {p.done}"))
    assert seen == ["epochs 4", "epochs 5", "epochs 6"]
    assert same(tmp_path, classified)


def test_time_that_is_up_at_the_first_stage_leaves_nothing(model: Path, tmp_path: Path) -> None:
    assert train(model, tmp_path, minutes=0.0) == {"finished": False}
    assert classifier_display.report_lines({"finished": False})[0].startswith("stopped before")


def test_a_finished_classifier_is_not_trained_again(model: Path, classified: Path) -> None:
    before = (classified / "classifier.safetensors").stat().st_mtime_ns
    stages: list[exit_run.StageProgress] = []
    content = train(model, classified, workloads=BOTH, progress=stages.append)
    assert content == json.loads((classified / "classifier.json").read_text())
    assert (stages, (classified / "classifier.safetensors").stat().st_mtime_ns) == ([], before)
    lines = classifier_display.report_lines(content)
    assert f"{content['report']['layers']['2']['all']['auc']:.3f}" in lines[4]
    assert f"{content['report']['exits']['all']['0.95']['agreement']:.3f}" in lines[-1]


def test_training_that_gains_nothing_says_so(model: Path, classified: Path, tmp_path: Path) -> None:
    content = train(model, tmp_path, rate=30.0, epochs=2)
    assert not load_file(tmp_path / "classifier.safetensors")["weight"].any()
    assert content["report"]["layers"]["1"]["all"]["auc"] == 0.5
    assert content["report"]["exits"]["all"]["0.5"]["skipped"] == 0
    assert classifier_display.report_lines(content)[-1] == classifier_display.NOTHING_LEARNT
    sound = json.loads((classified / "classifier.json").read_text())
    assert classifier_display.NOTHING_LEARNT not in classifier_display.report_lines(sound)


def test_a_classifier_of_some_layers_keeps_their_states_alone(model: Path, tmp_path: Path) -> None:
    with pytest.raises(StandInKillError):
        train(model, tmp_path, layers="2", progress=killer("epochs", 1))
    kept = sum(path.stat().st_size for path in (tmp_path / "state").glob("*.states"))
    content = train(model, tmp_path, layers="2")
    assert (content["layers"], open_classifier(tmp_path, model).layers) == ([2], (2,))
    report = content["report"]
    positions = report["training"]["positions"] + report["held_out"]["positions"]
    assert kept == 2 * positions * 32 * 4, "of layer 2 and the last, float32"
    assert report["exits"]["all"]["0.5"]["layers_run"] <= 4
    options = {"measure": "classifier", "classifier": str(tmp_path), "threshold": 0.5}
    for layers, told in (([2], []), ([1, 2], ["not trained after layer 1"])):
        lines = warnings("own-early-exit", Model(str(model)), {**options, "layers": layers})
        assert [line.partition("was ")[2] for line in lines] == told
