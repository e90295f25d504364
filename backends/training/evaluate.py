"""Quality of a checkpoint on unseen bundled rows: task scores and each layer's accuracy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from backends.training.batches import collate, examples
from backends.training.checkpoint import load
from backends.training.tokenizer import END, PAD, load_tokenizer
from workloads.bundled import GENERATORS, rows
from workloads.prompts import encode_prompt

BATCH = 50
MAX_NEW_TOKENS = 192


def evaluate(model_dir: Path, rows_per_workload: int = 200, seed: int = 0) -> dict[str, Any]:
    """Score greedy answers to test rows, and the layers' next-token accuracy on their answers.

    Returns:
        Per workload: `score` (ROUGE-L, pass@1 or exact match, as a mean), `exact_answers` (share
        equal to the reference, letter for letter) and `layer_accuracy` (teacher-forced share of
        answer tokens that each layer's top token hits, the stop token included).
    """
    tokenizer = load_tokenizer(model_dir)
    report: dict[str, Any] = {}
    for workload in GENERATORS:
        report[workload] = _scores(tokenizer, model_dir, workload, rows_per_workload, seed)
        report[workload]["layer_accuracy"] = layer_accuracy(
            model_dir, workload, rows_per_workload, seed
        )
    return report


def _scores(
    tokenizer: Any, model_dir: Path, workload: str, count: int, seed: int
) -> dict[str, Any]:
    from workloads.prompts import answer
    from workloads.scoring import score_all

    drawn = rows(workload, "test", count, seed)
    texts = generate(tokenizer, model_dir, [encode_prompt(tokenizer, workload, r) for r in drawn])
    scored = score_all(workload, drawn, texts)
    (metric,) = scored[0]
    exact = sum(text == answer(workload, row) for row, text in zip(drawn, texts, strict=True))
    mean = sum(one[metric] for one in scored) / len(scored)
    return {"metric": metric, "score": mean, "exact_answers": exact / len(drawn)}


def generate(
    tokenizer: Any, model_dir: Path, prompts: Sequence[list[int]], limit: int = MAX_NEW_TOKENS
) -> list[str]:
    """Answer the prompts greedily in bfloat16 with transformers, in batches of like length."""
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(str(model_dir), dtype=torch.bfloat16).eval()
    texts = [""] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        width = max(len(prompts[i]) for i in chosen)
        ids = torch.tensor([[PAD] * (width - len(prompts[i])) + prompts[i] for i in chosen])
        mask = (ids != PAD).long()
        out = model.generate(
            ids, attention_mask=mask, max_new_tokens=limit, do_sample=False, pad_token_id=PAD
        )
        for i, row in zip(chosen, out[:, width:].tolist(), strict=True):
            kept = row[: row.index(END)] if END in row else row
            texts[i] = tokenizer.decode(kept, skip_special_tokens=True)
    return texts


@torch.no_grad()
def layer_accuracy(model_dir: Path, workload: str, count: int, seed: int = 0) -> list[float]:
    """Return, per layer, the share of answer tokens that its top token hits given the true prefix.

    The arithmetic is bfloat16, as in use.
    """
    tokenizer = load_tokenizer(model_dir)
    model = load(model_dir)
    drawn = sorted(examples(tokenizer, workload, count, seed, "test"), key=lambda e: e.length)
    hits, total = torch.zeros(model.shape.layers), 0
    for start in range(0, len(drawn), BATCH):
        batch = collate(drawn[start : start + BATCH])
        targets = batch.targets[batch.answers]
        for layer, state in enumerate(model.hidden_states(batch.ids, torch.bfloat16)):
            hits[layer] += (model.logits(state[batch.answers]).argmax(-1) == targets).sum()
        total += len(targets)
    return [float(share) for share in hits / total]
