"""The prompts of a calibration, in groups that are decoded together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.checkpoints.models import one_line
from backends.early_exit.calibration.group import AnsweredGroup
from backends.early_exit.calibration.settings import Settings
from harness.core.backend import Backend
from harness.core.errors import UserError
from harness.core.nouns import Request, canonical_json

if TYPE_CHECKING:
    from backends.training.exits.data import TrainPrompt
    from backends.training.exits.recipe import ExitRecipe


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
    training, are passed over for the next ones: what was fitted to a row does better on it.
    Only whole groups: a smaller last one would weigh as much as the others. Raises `UserError` for
    a workload without rows, or without enough that are not of the training.
    """
    from backends.training.exits.recipe import ExitRecipe, check_recipe

    recipe = ExitRecipe(
        checkpoint="",
        layers=(),
        workloads=settings.workloads,
        source=settings.source,
        rows=settings.rows,
        seed=settings.seed,
    )
    check_recipe(recipe)
    seen = _Seen()
    if report is not None:
        seen = _Seen(report, *_trained_rows(report, directory, tokenizer))
    read = [
        prompt
        for name in settings.workloads
        for prompt in _unseen(
            replace(recipe, workloads=(name,)), seen, directory, tokenizer, settings.answer_limits
        )
    ]
    prompts = list(
        _in_turn(
            [CalibrationPrompt(p.workload, p.row, tuple(p.ids), p.limit, p.data) for p in read]
        )
    )
    batch = settings.batch
    return [prompts[end - batch : end] for end in range(batch, len(prompts) + 1, batch)]


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
    sums = [{"steps": 0.0, "layers_run": 0.0, "layers_total": 0.0} for _ in groups]
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
            for name in sums[group]:
                sums[group][name] += commit.telemetry.get(name, 0.0)
            if commit.finished is not None:
                going.remove(commit.request_id)
    return [
        AnsweredGroup(
            tuple(tuple(answers[name]) for name, (at, _) in asked.items() if at == group),
            **sums[group],
        )
        for group in range(len(groups))
    ]


@dataclass(frozen=True, slots=True)
class _Seen:
    """The rows of a training, by their ids and by the tokens of their prompts: the same rows may
    lie in another source under other ids."""

    report: Path | None = None
    rows: frozenset[str] = frozenset()
    prompts: frozenset[tuple[int, ...]] = frozenset()

    def __contains__(self, prompt: TrainPrompt) -> bool:
        return prompt.row in self.rows or tuple(prompt.ids) in self.prompts


def _trained_rows(
    report: Path, directory: Path, tokenizer: Any
) -> tuple[frozenset[str], frozenset[tuple[int, ...]]]:
    """Ids and prompts of the rows named by the recipe in `classifier.json` or `heads.json`."""
    from backends.training.exits import data as exit_data
    from backends.training.exits.backbone import architecture_of
    from backends.training.exits.recipe import ExitRecipe, check_recipe

    try:
        told = json.loads(report.read_text(encoding="utf-8"))["recipe"]
        recipe = ExitRecipe("", (), tuple(told["workloads"]), source=told["source"])
        recipe = replace(recipe, rows=told["rows"], seed=told["seed"], held_out=told["held_out"])
        check_recipe(recipe)
        if not isinstance(recipe.source, str) or type(recipe.seed) is not int:
            raise TypeError("source is no text or seed no whole number")
        read = exit_data.read_prompts(recipe, tokenizer, architecture_of(directory).positions)
        if told.get("prompts") not in (None, exit_data.prompts_checksum(read)):
            raise ValueError(f"source '{recipe.source}' gives other rows or prompts by now")
    except (UserError, OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{report}: the rows of this training cannot be kept out of the calibration, as they "
            f"cannot be read again: {one_line(error)}"
        ) from None
    return frozenset(p.row for p in read), frozenset(tuple(p.ids) for p in read)


def _unseen(
    recipe: ExitRecipe, seen: _Seen, directory: Path, tokenizer: Any, limits: Mapping[str, int]
) -> list[TrainPrompt]:
    """One workload's prompts of the first `recipe.rows` rows that are not of the training."""
    from backends.training.exits import data as exit_data
    from backends.training.exits.backbone import architecture_of

    positions = architecture_of(directory).positions
    assert recipe.rows is not None
    wanted = drawn = recipe.rows
    while True:
        try:
            drawing = replace(recipe, rows=drawn)
            read = exit_data.read_prompts(drawing, tokenizer, positions, limits)
        except UserError:
            if drawn == wanted:
                raise
            raise UserError(
                f"--rows: of source '{recipe.source}' fewer than {wanted} rows of workload "
                f"{recipe.workloads[0]} are left without those of the training in {seen.report}; "
                "take fewer or another --source, or train on fewer"
            ) from None
        fresh = [prompt for prompt in read if prompt not in seen]
        known = len(read) - len(fresh)
        if drawn - known >= wanted:
            return fresh
        drawn = wanted + known


def _in_turn(prompts: Sequence[CalibrationPrompt]) -> Iterator[CalibrationPrompt]:
    by_workload: dict[str, list[CalibrationPrompt]] = {}
    for prompt in prompts:
        by_workload.setdefault(prompt.workload, []).append(prompt)
    for place in range(max(map(len, by_workload.values()))):
        yield from (own[place] for own in by_workload.values() if place < len(own))
