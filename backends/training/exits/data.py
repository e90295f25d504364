"""What exits learn from: train rows as prompts, which the frozen model answers (`answers`)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from backends.training.exits.recipe import ExitRecipe
from harness.core.errors import UserError
from harness.core.files import sha256, user_path
from harness.core.names import BUNDLED, HUB
from harness.core.nouns import Workload, canonical_json
from workloads import OWN, workload_info
from workloads.chat import OPTION, chat_of
from workloads.datasets import Row
from workloads.measured import answer_bound, answer_length, load_rows
from workloads.prompts import encode_prompt

ROWS = 1000
"""Rows of each workload where the recipe names no number; the paper took 974 to 10,000."""
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
    most tokens of an answer, of workloads that are not to have their `answer_tokens`. A row that
    bounds its answer has no longer one.

    Raises:
        UserError: for a source without enough rows, for an option `chat` that the model's template
            does not read, or when fewer than two rows fit.
    """
    prompts: list[TrainPrompt] = []
    for name in recipe.workloads:
        limit = limits.get(name, workload_info(name).answer_tokens)
        rows = _train_rows(recipe, name, tokenizer)
        asked = _train_workload(recipe, name)
        cut = asked.options.get("max_article_tokens")
        chat = chat_of(Workload(name, options=_options(recipe, name)))
        encoded = [(row, encode_prompt(tokenizer, name, row.data, cut, chat)) for row in rows]
        kept = [
            (row, ids, most)
            for row, ids in encoded
            if len(ids) + (most := _row_limit(row, limit, tokenizer)) <= positions
        ]
        if len(kept) < 2:
            raise UserError(
                f"workload {name}: no rows to train on: of {len(encoded)} prompts {len(kept)} fit "
                f"into the model's {positions} positions with {limit} new tokens"
            )
        trained = len(kept) - max(1, round(len(kept) * recipe.held_out))
        prompts += [
            TrainPrompt(name, row.id, ids, most, number >= trained, row.data)
            for number, (row, ids, most) in enumerate(kept)
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


def told_rows(recipe: ExitRecipe, name: str) -> dict[str, Any]:
    """Where a workload's rows are from: `source` (of a file or folder its whole path), the `sha256`
    of a file, the `options` that were given, and `rows` where they are another data set's in this
    workload's form. Raises `UserError` and `OSError` for a file that cannot be read."""
    read = _train_workload(recipe, name)
    found: dict[str, Any] = {"source": read.source}
    if options := _options(recipe, name):
        found["options"] = dict(options)
    if read.source not in (BUNDLED, HUB):
        path = user_path(read.source, "--source")
        found["source"] = str(path.resolve())
        if path.is_file():
            found["sha256"] = sha256(path)
    return found | ({} if read.name == name else {"rows": read.name})


def _train_workload(recipe: ExitRecipe, name: str) -> Workload:
    """What is read for a workload: MBPP's rows in the place of HumanEval's, which are all for
    measuring."""
    real_code = name == "humaneval" and recipe.source != BUNDLED
    stored = "mbpp" if real_code else name
    options: dict[str, Any] = {"split": "train"}
    if real_code:
        options = {"split": ALL_OF_MBPP} if recipe.source == HUB else {}
    source = recipe.source
    if source not in (BUNDLED, HUB):
        folder = user_path(source, "--source")
        source = str(folder / stored) if (folder / stored).exists() else source
        if Path(source).is_file() or name in OWN:
            options = {}
    given = dict(_options(recipe, name))
    if real_code:
        given.pop(OPTION, None)  # of the prompts made of its rows
    return Workload(stored, source, recipe.rows, options | given)


def _row_limit(row: Row, limit: int, tokenizer: Any) -> int:
    """Tokens of the answer at the most, as a trial bounds it."""
    return min(limit, answer_length(row, tokenizer) or limit, answer_bound(row) or limit)


def _options(recipe: ExitRecipe, name: str) -> Mapping[str, Any]:
    return (recipe.workload_options or {}).get(name, {})


def _train_rows(recipe: ExitRecipe, name: str, tokenizer: Any) -> list[Row]:
    """Distinct rows of the train split, with the fields that a prompt is made of."""
    workload = _train_workload(recipe, name)
    drawn: dict[str, Row] = {}
    for row in load_rows(workload, recipe.seed, recipe.rows or ROWS, tokenizer):
        drawn.setdefault(row.id, row)
    if workload.name == name:
        return list(drawn.values())
    shaped = ((row, humaneval_row(row.data)) for row in drawn.values())
    return [replace(row, data=data) for row, data in shaped if data is not None]
