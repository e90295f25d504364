"""The prompts of a calibration, in groups that are decoded together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.early_exit.calibration.group import AnsweredGroup
from backends.early_exit.calibration.settings import VLLM, Settings
from backends.early_exit.calibration.unseen import seen_rows, unseen
from backends.early_exit.sizes import named_sizes
from harness.core.backend import Backend
from harness.core.errors import UserError
from harness.core.nouns import Request, canonical_json

if TYPE_CHECKING:
    from backends.training.exits.recipe import ExitRecipe

CHECKS = "checks_layer_"
"""Begins the counts of checks in a request's telemetry, one for each layer."""


@dataclass(frozen=True, slots=True)
class CalibrationPrompt:
    """A calibration prompt. `limit` is the most tokens that its answer may have."""

    workload: str
    row: str
    ids: tuple[int, ...]
    limit: int
    data: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The row's fields, for scoring."""


def read_groups(
    settings: Settings, directory: Path, tokenizer: Any, report: Path | None = None
) -> list[list[CalibrationPrompt]]:
    """The prompts of the train rows, `settings.batch` in each group, the workloads in turn.

    Rows that the heads or the classifier behind `report` were trained on, or held out in their
    training, and those of `settings.without` are passed over for the next ones: what was fitted to
    a row does better on it.
    Only whole groups: a smaller last one would weigh as much as the others. Raises `UserError` for
    a workload without rows, or without enough that are not of the training.
    """
    from backends.training.exits.backbone import architecture_of
    from backends.training.exits.recipe import check_recipe

    recipe = _recipe(settings)
    check_recipe(recipe)
    seen = seen_rows(report, settings.without, directory, tokenizer)
    # of vLLM's models our engine does not compute all
    if settings.backend == VLLM:
        positions = settings.longest(named_sizes(directory).positions)
    else:
        positions = settings.longest(architecture_of(directory).positions)
    read = [
        prompt
        for name in settings.workloads
        for prompt in unseen(
            replace(recipe, workloads=(name,)), seen, tokenizer, positions, settings.answer_limits
        )
    ]
    prompts = list(
        _in_turn(
            [CalibrationPrompt(p.workload, p.row, tuple(p.ids), p.limit, p.data) for p in read]
        )
    )
    batch = settings.batch
    return [prompts[end - batch : end] for end in range(batch, len(prompts) + 1, batch)]


def told_data(settings: Settings) -> dict[str, dict[str, Any]]:
    """Where the rows of each workload are from, as `Calibration.data` has it. Raises `UserError`
    for a file that cannot be read."""
    from backends.training.exits.data import told_rows

    try:
        return {name: told_rows(_recipe(settings), name) for name in settings.workloads}
    except OSError as error:
        raise UserError(f"--source: {settings.source}: {error.strerror}") from None


def _recipe(settings: Settings) -> ExitRecipe:
    from backends.training.exits.recipe import ExitRecipe

    return ExitRecipe(
        checkpoint="",
        layers=(),
        workloads=settings.workloads,
        source=settings.source,
        rows=settings.rows,
        seed=settings.seed,
        workload_options=settings.workload_options,
    )


def prompts_checksum(groups: Sequence[Sequence[CalibrationPrompt]]) -> str:
    """sha256, in hex, of the prompts' tokens and limits in their order."""
    content = [[prompt.ids, prompt.limit] for group in groups for prompt in group]
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def decode(
    backend: Backend, groups: Sequence[Sequence[CalibrationPrompt]], stops: Sequence[int]
) -> list[AnsweredGroup]:
    """Answer the prompts of groups, all of which start together. Raises `UserError` for one that
    the backend refuses."""
    answers: dict[str, list[int]] = {}
    asked: dict[str, tuple[int, CalibrationPrompt]] = {}
    sums = [dict.fromkeys(("steps", "layers_run", "layers_total", "checks"), 0.0) for _ in groups]
    for group, prompts in enumerate(groups):
        for number, prompt in enumerate(prompts):
            name = f"{group}.{number}"
            answers[name], asked[name] = [], (group, prompt)
            backend.submit(Request(name, prompt.ids, prompt.limit, stop_ids=tuple(stops)))
    going = set(answers)
    while going:
        for commit in backend.poll():
            group, prompt = asked[commit.request_id]
            if commit.finished == "error":
                raise UserError(f"workload {prompt.workload}, row {prompt.row}: {commit.error}")
            answers[commit.request_id].extend(commit.token_ids)
            for name, count in commit.telemetry.items():
                counted = "checks" if name.startswith(CHECKS) else name
                if counted in sums[group]:
                    sums[group][counted] += count
            if commit.finished is not None:
                going.remove(commit.request_id)
    return [
        AnsweredGroup(
            tuple(tuple(answers[name]) for name, (at, _) in asked.items() if at == group),
            **sums[group],
        )
        for group in range(len(groups))
    ]


def _in_turn(prompts: Sequence[CalibrationPrompt]) -> Iterator[CalibrationPrompt]:
    by_workload: dict[str, list[CalibrationPrompt]] = {}
    for prompt in prompts:
        by_workload.setdefault(prompt.workload, []).append(prompt)
    for place in range(max(map(len, by_workload.values()))):
        yield from (own[place] for own in by_workload.values() if place < len(own))
