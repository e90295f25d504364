"""Evaluation of checkpoints: generation, scores and the layers' accuracies."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from backends import demo
from backends.training.rows.batches import Example, collate
from backends.training.rows.tokenizer import END, load_tokenizer
from backends.training.small_models import checkpoint, evaluate
from backends.training.small_models.llama import Llama, LlamaShape
from backends.training.small_models.objective import products_dtype
from workloads import bundled, prompts

TINY = {"layers": 3, "width": 32, "feed_forward": 48, "heads": 2, "kv_heads": 1, "head_dim": 16}


@pytest.fixture(scope="module")
def target() -> Path:
    return demo.path("target")


def test_references_score_full_marks_and_nonsense_none() -> None:
    for workload in ("gsm8k", "xsum", "cnn_dailymail"):
        rows = bundled.rows(workload, "test", 5)
        right = evaluate.scores(workload, rows, [prompts.answer(workload, r) for r in rows])
        assert right["score"] == right["scores"][right["metric"]] == pytest.approx(1.0)
        assert right["exact_answers"] == 1.0
        assert right["rows"] == 5
        wrong = evaluate.scores(workload, rows, ["zzz"] * 5)
        assert (wrong["score"], wrong["exact_answers"]) == (0.0, 0.0)


def test_score_of_word_problems_is_the_official_one() -> None:
    rows = bundled.rows("gsm8k", "test", 4)
    texts = [prompts.answer("gsm8k", row).replace("#### ", "") for row in rows]
    found = evaluate.scores("gsm8k", rows, texts)
    assert (found["metric"], found["score"]) == ("exact_match", 0.0)
    assert found["scores"]["exact_match_flexible"] == 1.0


def test_layer_accuracy_counts_the_hits_of_each_layer() -> None:
    """The targets are one layer's own top tokens, so that layer must score 1."""
    torch.manual_seed(0)
    model = Llama(LlamaShape(60, **TINY))
    batch = collate([Example([7, 8, 9], [10, 11, 12, END]), Example([5, 6], [7, END])])
    with torch.no_grad():
        states = model.hidden_states(batch.ids, products_dtype("cpu"))
        tops = [model.logits(state).argmax(-1) for state in states]
    batch.targets[batch.answers] = tops[1][batch.answers]
    first, second, third = evaluate.layer_accuracy(model, [batch, batch])
    assert second == 1.0
    assert first == float((tops[0] == tops[1])[batch.answers].float().mean())
    assert third == float((tops[2] == tops[1])[batch.answers].float().mean())


def test_agreement_is_full_with_itself() -> None:
    torch.manual_seed(0)
    one, other = Llama(LlamaShape(60, **TINY)), Llama(LlamaShape(60, **TINY))
    batch = collate([Example([7, 8, 9], [10, 11, 12, END])])
    assert evaluate.agreement(one, one, [batch]) == 1.0
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            if "down_proj" in name:
                parameter.mul_(1000)
    assert evaluate.agreement(one, other, [batch]) < 1.0


def test_generation_in_a_batch_equals_stepwise_argmax(target: Path) -> None:
    """Left padding and the cache must not show: each answer is compared with our own model's.

    Near-ties may fall differently between two implementations, so at most one of the four answers
    may differ.
    """
    tokenizer, model = load_tokenizer(target), checkpoint.load(target)
    rows = [(w, bundled.rows(w, "test", 1)) for w in bundled.GENERATORS]
    ids = [prompts.encode_prompt(tokenizer, w, row) for w, drawn in rows for row in drawn]
    texts = evaluate.generate(tokenizer, target, ids, limit=16)
    differing = 0
    for prompt, text in zip(ids, texts, strict=True):
        grown = list(prompt)
        with torch.no_grad():
            for _ in range(16):
                states = model.hidden_states(torch.tensor([grown]), products_dtype("cpu"))
                state = states[-1][0, -1]
                grown.append(int(model.logits(state).argmax()))
                if grown[-1] == END:
                    break
        own = [i for i in grown[len(prompt) :] if i != END]
        differing += tokenizer.decode(own) != text
    assert differing <= 1


def test_the_bundled_checkpoint_is_what_the_design_allows(target: Path) -> None:
    files = [f for f in target.parent.rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in files) < 25_000_000
    model = checkpoint.load(target)
    shape = model.shape
    assert 8 <= shape.layers <= 12
    assert sum(p.numel() for p in model.parameters()) <= 12_000_000
    layer = sum(p.numel() for p in model.model.layers[0].parameters())
    assert shape.vocabulary * shape.width <= layer / 2, "an exit check costs at most half a layer"
    assert {p.suffix for p in files} <= {".json", ".safetensors", ".parquet", ".md", ".py", ".pyc"}


def test_the_bundled_model_solves_the_tasks(target: Path) -> None:
    """Well under the card's figures, well over what a model that ignores its prompt reaches."""
    tokenizer, model = load_tokenizer(target), checkpoint.load(target)
    for workload in bundled.GENERATORS:
        batches = evaluate.answer_batches(tokenizer, workload, 25, seed=3)
        accuracy = evaluate.layer_accuracy(model, batches)
        assert accuracy[-1] > 0.85
        assert accuracy[0] < accuracy[-1] - 0.03
