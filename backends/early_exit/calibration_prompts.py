"""The prompts of a calibration, in groups that are decoded together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.early_exit.calibration_runs import Group
from backends.early_exit.calibration_settings import Settings
from harness.core import Backend, Request, UserError, canonical_json


@dataclass(frozen=True, slots=True)
class Prompt:
    """A calibration prompt. `limit` is the most tokens that its answer may have."""

    workload: str
    row: str
    ids: tuple[int, ...]
    limit: int


def read_groups(settings: Settings, directory: Path, tokenizer: Any) -> list[list[Prompt]]:
    """The prompts of the train rows, `settings.batch` in each group, the workloads in turn.

    Only whole groups: a smaller last one would weigh as much as the others. Raises `UserError` for
    a workload without rows.
    """
    from backends.training import exit_data
    from backends.training.exit_backbone import architecture_of
    from backends.training.exit_recipe import ExitRecipe, check_recipe

    recipe = ExitRecipe(
        checkpoint="",
        layers=(),
        workloads=settings.workloads,
        source=settings.source,
        rows=settings.rows,
        seed=settings.seed,
    )
    check_recipe(recipe)
    read = exit_data.read_prompts(recipe, tokenizer, architecture_of(directory).positions)
    prompts = list(_in_turn([Prompt(p.workload, p.row, tuple(p.ids), p.limit) for p in read]))
    batch = settings.batch
    return [prompts[end - batch : end] for end in range(batch, len(prompts) + 1, batch)]


def prompts_checksum(groups: Sequence[Sequence[Prompt]]) -> str:
    """sha256, in hex, of the prompts' tokens and limits in their order."""
    content = [[prompt.ids, prompt.limit] for group in groups for prompt in group]
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def decode(backend: Backend, prompts: Sequence[Prompt], stops: Sequence[int]) -> Group:
    """Answer prompts that start together. Raises `UserError` for one that the backend refuses."""
    answers: dict[str, list[int]] = {}
    for number, prompt in enumerate(prompts):
        answers[str(number)] = []
        backend.submit(Request(str(number), prompt.ids, prompt.limit, stop_ids=tuple(stops)))
    going, sums = set(answers), {"steps": 0.0, "layers_run": 0.0, "layers_total": 0.0}
    while going:
        for commit in backend.poll():
            if commit.finished == "error":
                prompt = prompts[int(commit.request_id)]
                raise UserError(f"workload {prompt.workload}, row {prompt.row}: {commit.error}")
            answers[commit.request_id].extend(commit.token_ids)
            for name in sums:
                sums[name] += commit.telemetry.get(name, 0.0)
            if commit.finished is not None:
                going.remove(commit.request_id)
    return Group(tuple(tuple(ids) for ids in answers.values()), **sums)


def _in_turn(prompts: Sequence[Prompt]) -> Iterator[Prompt]:
    by_workload: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_workload.setdefault(prompt.workload, []).append(prompt)
    for place in range(max(map(len, by_workload.values()))):
        yield from (own[place] for own in by_workload.values() if place < len(own))
