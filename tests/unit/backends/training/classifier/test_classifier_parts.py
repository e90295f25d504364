"""The exit classifier piece by piece: labels, class weights, gradient, scale, figures."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from backends.training.classifier import fit as classifier_fit
from backends.training.classifier import labels as classifier_labels
from backends.training.classifier.fit import class_weights, classifier_problem, scale_of
from backends.training.classifier.labels import Labels, label
from backends.training.classifier.report import confidences, held_out_report
from backends.training.exits.backbone import architecture_of, read_backbone
from backends.training.exits.cache import Cache
from backends.training.exits.fit import fit
from backends.training.exits.recipe import STATE, ExitRecipe
from tests.support.tiny_llama import write_tiny_llama

CPU = torch.device("cpu")


def random_cache(seed: int, answers: int = 5, layers: int = 3, width: int = 6) -> Cache:
    """States of uneven scale and mean, and ever louder with depth, as a residual stream's are."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 40, (answers,), generator=generator).tolist()
    starts = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    states = torch.randn(layers + 1, starts[-1], width, generator=generator)
    states *= torch.tensor([100.0, 1, 0.1, 1, 1, 1]) * torch.arange(1, layers + 2)[:, None, None]
    states[..., 3] += 50
    return Cache(states, starts, ["gsm8k", "xsum"][:answers] + ["gsm8k"] * (answers - 2))


def random_labels(cache: Cache, seed: int) -> Labels:
    generator = torch.Generator().manual_seed(seed)
    shares = torch.tensor([0.6, 0.9, 0.97])[:, None]
    agrees = torch.rand(3, cache.positions, generator=generator) < shares
    return Labels(agrees, torch.rand(3, cache.positions, generator=generator))


def reference_loss(cache: Cache, labels: Labels, weight: Tensor, bias: Tensor) -> Tensor:
    """Class-balanced cross-entropy by torch: the weighted mean over all layers and positions."""
    losses, total = [], 0.0
    for states, agrees in zip(cache.states[:-1], labels.agrees, strict=True):
        share = agrees.float().mean()
        weights = torch.stack([share, 1 - share])  # 1 - share of "differs", 1 - share of "agrees"
        given, target = states @ weight.T + bias, agrees.long()
        losses.append(functional.cross_entropy(given, target, weight=weights, reduction="sum"))
        total += float(weights[target].sum())
    return torch.stack(losses).sum() / total


def test_loss_and_gradient_are_those_of_torchs_weighted_cross_entropy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(classifier_fit.NUMBERS, "cpu", 16 * 4 * 6)  # several pieces
    cache = random_cache(0)
    labels, scale = random_labels(cache, 1), scale_of(cache, CPU)
    problem = classifier_problem(cache, cache, (labels, labels), scale, CPU)
    (parameter,) = problem.parameters
    parameter.copy_(torch.randn(2, 7, generator=torch.Generator().manual_seed(2)))
    made = problem.step([3, 1, 0, 4, 2])
    assert made.positions == cache.positions > 32
    scaled = Cache((cache.states - scale.mean) / scale.deviation, cache.starts, cache.workloads)
    own = parameter.clone().requires_grad_()
    loss = reference_loss(scaled, labels, own[:, :-1], own[:, -1])
    (slope,) = torch.autograd.grad(loss, own)
    expected = loss.detach()
    assert float(made.losses / made.positions) == pytest.approx(float(expected), rel=1e-5)
    torch.testing.assert_close(made.gradients[0] / made.positions, slope, rtol=1e-4, atol=1e-6)
    assert problem.held_out()[0] == pytest.approx(float(expected), rel=1e-5)
    weight, bias = scale.folded(parameter)
    raw = reference_loss(cache, labels, weight, bias)
    assert float(raw) == pytest.approx(float(expected), rel=1e-4)


def test_a_batch_is_its_answers_positions() -> None:
    """The batches' sums add up to those of all: the weights are the whole training set's."""
    cache = random_cache(3)
    labels, scale = random_labels(cache, 4), scale_of(cache, CPU)
    problem = classifier_problem(cache, cache, (labels, labels), scale, CPU)
    whole, parts = problem.step([0, 1, 2, 3, 4]), [problem.step([4, 1]), problem.step([0, 3, 2])]
    assert [part.positions for part in parts] == [
        sum(cache.starts[i + 1] - cache.starts[i] for i in chosen) for chosen in ([4, 1], [0, 3, 2])
    ]
    torch.testing.assert_close(sum(part.losses for part in parts), whole.losses)
    torch.testing.assert_close(sum(part.gradients for part in parts), whole.gradients)


def test_within_a_layer_each_class_counts_alike() -> None:
    shares = torch.tensor([0.5, 0.9, 1.0, 0.0, 0.25]).double()
    differs, agrees = class_weights(shares)
    mean = (0.5 + 0.18 + 0 + 0 + 0.375) / 5
    assert (differs * mean).tolist() == pytest.approx([0.5, 0.9, 1, 0, 0.25])
    assert (agrees * mean).tolist() == pytest.approx([0.5, 0.1, 0, 1, 0.75])
    assert (shares * agrees).tolist() == pytest.approx(((1 - shares) * differs).tolist())
    assert float((shares * agrees + (1 - shares) * differs).mean()) == pytest.approx(1)


def test_the_scale_is_that_of_all_layers_but_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(classifier_fit.NUMBERS, "cpu", 1)
    cache = random_cache(5)
    scale, flat = scale_of(cache, CPU), cache.states[:-1].flatten(0, 1)
    torch.testing.assert_close(scale.mean, flat.mean(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(scale.deviation, flat.std(0, unbiased=False), rtol=1e-4, atol=1e-4)


def ruled(seed: int) -> tuple[Cache, Labels]:
    """One position in ten differs, by a linear rule in the quiet dimensions."""
    cache = random_cache(seed, answers=60)
    score = cache.states[:-1] @ torch.tensor([0.0, 1, 10, 0, -1, 1])
    return cache, Labels(score > score.quantile(0.1), torch.zeros_like(score))


def test_a_linear_rule_is_learnt_from_unbalanced_classes(tmp_path: Path) -> None:
    (tmp_path / STATE).mkdir()
    recipe = ExitRecipe("", (1, 2, 3), ("gsm8k",), "classifier", epochs=60, rate=0.1, batch=16)
    (train, taught), (held_out, asked) = ruled(0), ruled(1)
    scale = scale_of(train, CPU)
    problem = classifier_problem(train, held_out, (taught, asked), scale, CPU)
    done = fit(tmp_path, recipe, problem, lambda state: True)
    confidence = confidences(held_out, *scale.folded(done.best[0]))
    report = held_out_report(held_out, (1, 2, 3), asked, confidence, depth=4)
    for layer in ("1", "2", "3"):
        figures = report["layers"][layer]["all"]
        assert figures["auc"] > 0.98
        assert figures["balanced_accuracy"] > 0.93
    assert report["exits"]["all"]["0.5"]["agreement"] > 0.98


def test_labels_are_the_models_own_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against transformers, in pieces that do not divide the positions; and kept on disk."""
    from transformers import LlamaForCausalLM

    monkeypatch.setitem(classifier_labels.LOGITS, "cpu", 1)
    folder = write_tiny_llama(tmp_path)
    backbone = read_backbone(folder, architecture_of(folder), "cpu", normed=False)
    reference = LlamaForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    ids = torch.randint(2, 258, (1, 37), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = reference(ids, output_hidden_states=True)
        states = backbone.states(ids, range(1, 9))
        tokens, margins = [], []
        for layer in range(1, 8):
            torch.testing.assert_close(
                states[layer], found.hidden_states[layer], rtol=1e-4, atol=1e-4
            )
            shares = reference.lm_head(reference.model.norm(found.hidden_states[layer]))[0]
            top = shares.softmax(-1).topk(2)
            tokens.append(top.indices[:, 0])
            margins.append(top.values[:, 0] - top.values[:, 1])
    cache = Cache(torch.stack([states[layer][0] for layer in range(1, 9)]), [0, 37], ["gsm8k"])
    kept = tmp_path / "some.labels"
    assert label(kept, backbone, cache, lambda done: done < 20) is None
    assert not kept.exists()
    labels = label(kept, backbone, cache, lambda done: True)
    assert labels is not None
    assert torch.equal(labels.agrees, torch.stack(tokens) == found.logits[0].argmax(-1))
    assert 0 < labels.agrees.float().mean() < 1
    torch.testing.assert_close(labels.margin, torch.stack(margins), rtol=1e-3, atol=1e-4)

    def never(done: int) -> bool:
        raise AssertionError("the labels were there")

    again = label(kept, backbone, cache, never)
    assert again is not None
    assert torch.equal(again.agrees, labels.agrees)


def test_figures_of_a_layer_with_one_class_and_of_thresholds_nobody_passes() -> None:
    cache = Cache(torch.zeros(3, 3, 1), [0, 1, 3], ["gsm8k", "xsum"])
    agrees = torch.tensor([[True, False, True], [True, True, True]])
    confidence = torch.tensor([[0.5, 0.6, 0.95], [0.96, 0.1, 0.1]])
    report = held_out_report(cache, (1, 2), Labels(agrees, confidence), confidence, depth=3)
    first, second = report["layers"]["1"], report["layers"]["2"]
    assert first["all"]["over"]["0.5"] == {"share": 0.66667, "precision": 0.5}  # strictly over
    assert first["all"]["over"]["0.95"] == {"share": 0.0, "precision": None}
    assert (first["all"]["auc"], first["gsm8k"]["auc"], second["all"]["auc"]) == (0.5, None, None)
    assert first["gsm8k"]["positions"] == 1
    assert second["all"]["balanced_accuracy"] == pytest.approx(1 / 3, abs=1e-5)
    deeper = held_out_report(cache, (1, 2), Labels(agrees, confidence), confidence, depth=9)
    told = deeper["exits"]["all"]["0.95"]
    assert told == {"layers_run": 6.6667, "skipped": 0.25926, "agreement": 1.0}, "2 of 3 run all 9"
    exits = report["exits"]["all"]
    assert exits["0.5"] == {"layers_run": 1.3333, "skipped": 0.55556, "agreement": 0.66667}
    assert exits["0.95"] == {"layers_run": 2.6667, "skipped": 0.11111, "agreement": 1.0}
    assert report["exits"]["xsum"]["0.5"] == {
        "layers_run": 1.0,
        "skipped": 0.66667,
        "agreement": 0.5,
    }
