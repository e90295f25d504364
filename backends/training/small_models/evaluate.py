"""Quality of a checkpoint on unseen bundled rows: task scores and each layer's accuracy.

`python -m backends.training.small_models.evaluate FOLDER [ROWS [SEED]]` prints `evaluate` as JSON.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from backends.training.exits.answers import generated, generator
from backends.training.exits.data import TrainPrompt
from backends.training.rows.batches import Batch, collate, examples
from backends.training.rows.tokenizer import END, load_tokenizer
from backends.training.small_models.checkpoint import load
from backends.training.small_models.llama import Llama
from backends.training.small_models.objective import products_dtype
from workloads import workload_info
from workloads.bundled import GENERATORS, rows
from workloads.prompts import answer, encode_prompt
from workloads.scoring import score_all

BATCH = 50
MAX_NEW_TOKENS = 192


def evaluate(model_dir: Path, rows_per_workload: int = 200, seed: int = 0) -> dict[str, Any]:
    """Score greedy answers to test rows, and the layers' next-token accuracy on their answers.

    Returns:
        Per workload: `metric` and `score` (the mean ROUGE-L, pass@1 or exact match, 0 to 1),
        `scores` (the means of all that the workload is scored by), `exact_answers` (share equal to
        the reference, letter for letter), `rows`, and `layer_accuracy` (see `layer_accuracy`).

    Raises:
        UserError: where HumanEval's programs cannot be held (see `workloads.sandbox.runner`).
    """
    tokenizer, model = load_tokenizer(model_dir), load(model_dir)
    report: dict[str, Any] = {}
    for workload in GENERATORS:
        drawn = rows(workload, "test", rows_per_workload, seed)
        ids = [encode_prompt(tokenizer, workload, row) for row in drawn]
        report[workload] = scores(workload, drawn, generate(tokenizer, model_dir, ids))
        batches = answer_batches(tokenizer, workload, rows_per_workload, seed)
        report[workload]["layer_accuracy"] = layer_accuracy(model, batches)
    return report


def scores(workload: str, drawn: Sequence[dict[str, str]], texts: Sequence[str]) -> dict[str, Any]:
    """Return the workload's mean task scores and the share of answers equal to the reference."""
    scored = score_all(workload, drawn, texts)
    means = {name: sum(one[name] for one in scored) / len(scored) for name in scored[0]}
    metric = workload_info(workload).metric
    equal = sum(text == answer(workload, row) for row, text in zip(drawn, texts, strict=True))
    return {
        "metric": metric,
        "score": means[metric],
        "scores": means,
        "exact_answers": equal / len(drawn),
        "rows": len(drawn),
    }


def generate(
    tokenizer: Any, model_dir: Path, prompts: Sequence[list[int]], limit: int = MAX_NEW_TOKENS
) -> list[str]:
    """Answer the prompts greedily with transformers, in batches of like length."""
    model = generator(model_dir, torch.empty(0, dtype=products_dtype("cpu")))
    asked = [TrainPrompt("", str(place), ids, limit, False) for place, ids in enumerate(prompts)]
    texts = [""] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        for i, answered in zip(chosen, generated(model, asked, [END], chosen), strict=True):
            texts[i] = tokenizer.decode(answered, skip_special_tokens=True)
    return texts


def answer_batches(tokenizer: Any, workload: str, count: int, seed: int = 0) -> list[Batch]:
    """Return test rows with their reference answers, in batches of like length."""
    drawn = sorted(examples(tokenizer, workload, count, seed, "test"), key=lambda e: e.length)
    return [collate(drawn[start : start + BATCH]) for start in range(0, len(drawn), BATCH)]


@torch.no_grad()
def layer_accuracy(model: Llama, batches: Sequence[Batch]) -> list[float]:
    """Return, per layer, the share of answer tokens that its top token hits given the true prefix.

    The stop token counts as an answer token; the arithmetic is `products_dtype`.
    """
    dtype = products_dtype("cpu")
    hits, total = torch.zeros(model.shape.layers), 0
    for batch in batches:
        targets = batch.targets[batch.answers]
        for layer, state in enumerate(model.hidden_states(batch.ids, dtype)):
            hits[layer] += (model.logits(state[batch.answers]).argmax(-1) == targets).sum()
        total += len(targets)
    return [float(share) for share in hits / total]


@torch.no_grad()
def agreement(draft: Llama, target: Llama, batches: Sequence[Batch]) -> float:
    """Return the share of answer positions at which both models' top tokens are the same."""
    equal, total, dtype = 0, 0, products_dtype("cpu")
    for batch in batches:
        tops = [
            model.logits(model.hidden_states(batch.ids, dtype)[-1][batch.answers]).argmax(-1)
            for model in (draft, target)
        ]
        equal += int((tops[0] == tops[1]).sum())
        total += len(tops[0])
    return equal / total


if __name__ == "__main__":
    folder, *numbers = sys.argv[1:]
    print(json.dumps(evaluate(Path(folder), *map(int, numbers)), indent=2))
