"""On-policy training data of exits: the frozen model's greedy answers to train rows.

The answers are kept in the run's state folder batch by batch, so that a killed run goes on.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from backends.training.exits.recipe import STATE, ExitRecipe
from harness.core.errors import UserError
from harness.core.files import user_path, write_atomic
from harness.core.nouns import Workload, canonical_json
from workloads import workload_info
from workloads.datasets import Row, load_rows
from workloads.prompts import encode_prompt

ROWS = 1000
"""Rows of each workload where the recipe names no number; the paper took 974 to 10,000."""
BATCH = 64
ALL_OF_MBPP = "train+test+validation+prompt"
"""The paper trains HumanEval's heads on all 974 rows."""


@dataclass(frozen=True, slots=True)
class TrainPrompt:
    """A train row's prompt. `limit` is the most tokens that its answer may have."""

    workload: str
    row: str
    ids: list[int]
    limit: int
    held_out: bool
    data: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The row's fields."""


def read_prompts(
    recipe: ExitRecipe,
    tokenizer: Any,
    positions: int,
    limits: Mapping[str, int] = MappingProxyType({}),
) -> list[TrainPrompt]:
    """The prompts of the train rows; the last of each workload's are held out.

    Rows whose prompt and longest answer do not fit into `positions` are left out. `limits`: the
    most tokens of an answer, of workloads that are not to have their `answer_tokens`.

    Raises:
        UserError: for a source without enough rows, or when fewer than two rows fit.
    """
    prompts: list[TrainPrompt] = []
    for name in recipe.workloads:
        limit = limits.get(name, workload_info(name).answer_tokens)
        texts = _train_rows(recipe, name)
        encoded = [(row_id, encode_prompt(tokenizer, name, data), data) for row_id, data in texts]
        kept = [
            (row_id, ids, data) for row_id, ids, data in encoded if len(ids) + limit <= positions
        ]
        if len(kept) < 2:
            raise UserError(
                f"workload {name}: no rows to train on: of {len(encoded)} prompts {len(kept)} fit "
                f"into the model's {positions} positions with {limit} new tokens"
            )
        trained = len(kept) - max(1, round(len(kept) * recipe.held_out))
        prompts += [
            TrainPrompt(name, row_id, ids, limit, number >= trained, data)
            for number, (row_id, ids, data) in enumerate(kept)
        ]
    return prompts


def prompts_checksum(prompts: Sequence[TrainPrompt]) -> str:
    """sha256, in hex, of the prompts' tokens and limits in their order, and which are held out."""
    content = [[prompt.ids, prompt.limit, prompt.held_out] for prompt in prompts]
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def humaneval_row(row: Mapping[str, str]) -> dict[str, str] | None:
    """An MBPP row as a prompt in HumanEval's form: signature, then the task as a docstring.

    MBPP's tasks are sentences, but heads are used on prompts that end inside a function. Returns
    None for a row whose code defines no function.
    """
    tested = re.search(r"assert\s+\(*(\w+)\s*\(", row["test_list"])
    names = ([re.escape(tested[1])] if tested else []) + [r"\w+"]
    for name in names:
        if found := re.search(rf"^def\s+({name})\s*\((.*)\)\s*:", row["code"], re.MULTILINE):
            task = row["text"].strip().replace('"""', "'''")
            example = row["test_list"].splitlines()[0].strip()
            prompt = f'def {found[1]}({found[2]}):\n    """{task}\n\n    {example}\n    """\n'
            return {"prompt": prompt}
    return None


def _train_rows(recipe: ExitRecipe, name: str) -> list[tuple[str, Mapping[str, str]]]:
    """Distinct rows of the train split, as ids and the fields that a prompt is made of."""
    real_code = name == "humaneval" and recipe.source != "bundled"
    stored = "mbpp" if real_code else name
    options: dict[str, Any] = {"split": "train"}
    if real_code:
        options = {"split": ALL_OF_MBPP} if recipe.source == "hub" else {}
    source = recipe.source
    if source not in ("bundled", "hub"):
        folder = user_path(source, "--source")
        source = str(folder / stored) if (folder / stored).exists() else source
        if Path(source).is_file():
            options = {}
    workload = Workload(stored, source, recipe.rows, options)
    drawn: dict[str, Row] = {}
    for row in load_rows(workload, recipe.seed, recipe.rows or ROWS):
        drawn.setdefault(row.id, row)
    if not real_code:
        return [(row.id, row.data) for row in drawn.values()]
    shaped = ((row.id, humaneval_row(row.data)) for row in drawn.values())
    return [(row_id, data) for row_id, data in shaped if data is not None]


def answers(
    out: Path,
    prompts: Sequence[TrainPrompt],
    directory: Path,
    stops: Sequence[int],
    like: Tensor,
    going_on: Callable[[int], bool],
) -> list[list[int]] | None:
    """The model's greedy answers in the order of the prompts, stop token included.

    Args:
        out: the run's folder, whose state keeps every batch as soon as it is answered.
        prompts: what to answer, in batches of like length.
        directory: the checkpoint.
        stops: token ids that end an answer.
        like: a tensor on the device and in the dtype that the model is to run in.
        going_on: called with the number of prompts answered so far; False stops early.

    Returns:
        None when it was stopped early.
    """
    path = out / STATE / "answers.jsonl"
    done = _read_answers(path)
    order = sorted(range(len(prompts)), key=lambda i: (prompts[i].limit, len(prompts[i].ids), i))
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    model = None
    for chosen in batches:
        if chosen[0] not in done:
            if not going_on(len(done)):
                return None
            model = model or _generator(directory, like)
            texts = _generate(model, [prompts[i] for i in chosen], stops)
            made = dict(zip(chosen, texts, strict=True))
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(list(made.items())) + "\n")
            done |= made
    return [done[number] for number in range(len(prompts))]


def _read_answers(path: Path) -> dict[int, list[int]]:
    """The batches on disk; a line that a kill cut short is dropped from the file too."""
    if not path.is_file():
        return {}
    whole = [line for line in path.read_text(encoding="utf-8").splitlines(True) if line[-1] == "\n"]
    write_atomic(path, "".join(whole).encode())
    return {int(number): ids for line in whole for number, ids in json.loads(line)}


def _generator(directory: Path, like: Tensor) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        str(directory), dtype=like.dtype, local_files_only=True, trust_remote_code=False
    )
    return model.to(like.device).eval()


def _generate(
    model: Any, prompts: Sequence[TrainPrompt], stops: Sequence[int]
) -> Iterator[list[int]]:
    """Answer one batch, padded on the left.

    The checkpoint's own generation settings are set aside: some hold a repetition penalty.
    """
    from transformers import GenerationConfig

    width = max(len(prompt.ids) for prompt in prompts)
    padding = [width - len(prompt.ids) for prompt in prompts]
    ids = torch.tensor(
        [[0] * pad + prompt.ids for pad, prompt in zip(padding, prompts, strict=True)]
    )
    mask = torch.arange(width) >= torch.tensor(padding)[:, None]
    greedy = GenerationConfig(
        max_new_tokens=max(prompt.limit for prompt in prompts),
        do_sample=False,
        pad_token_id=0,
        eos_token_id=list(stops) or None,
    )
    out: Tensor = model.generate(
        ids.to(model.device),
        attention_mask=mask.long().to(model.device),
        generation_config=greedy,
    )
    for prompt, row in zip(prompts, out[:, width:].tolist(), strict=True):
        end = next((i + 1 for i, token in enumerate(row) if token in stops), len(row))
        yield row[: min(end, prompt.limit)]
