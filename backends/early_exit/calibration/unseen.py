"""Calibration rows that nothing was fitted to: neither by a training nor by an earlier choice."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.checkpoints.bound_files import MOST_BYTES
from backends.checkpoints.models import one_line
from backends.seen import MARKS, prompt_mark, read_marks
from harness.core.errors import UserError
from harness.core.files import read_text, user_path

if TYPE_CHECKING:
    from backends.training.exits.data import TrainPrompt
    from backends.training.exits.recipe import ExitRecipe


@dataclass(frozen=True, slots=True)
class SeenRows:
    """Rows that are out, by their ids and by the tokens of their prompts: the same rows may lie in
    another source under other ids."""

    of: str = ""
    """Who has seen them, in words."""
    rows: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()

    def __contains__(self, prompt: TrainPrompt) -> bool:
        return prompt.row in self.rows or prompt_mark(prompt.ids) in self.marks


def seen_rows(
    report: Path | None, without: Sequence[str], directory: Path, tokenizer: Any
) -> SeenRows:
    """The rows of the training that wrote `report`, and those of earlier calibrations.

    Args:
        report: `classifier.json` or `heads.json`; None where nothing is trained.
        without: calibration files or the files of their answers.
        directory, tokenizer: the model's.

    Raises:
        UserError: for a file that does not say which prompts it is of.
    """
    trained = SeenRows() if report is None else _trained_rows(report, directory, tokenizer)
    earlier = [_earlier_marks(name) for name in without]
    of = [f"the training in {report}"] * (report is not None) + list(without)
    return SeenRows(" and ".join(of), trained.rows, trained.marks.union(*earlier))


def unseen(
    recipe: ExitRecipe, seen: SeenRows, tokenizer: Any, positions: int, limits: Mapping[str, int]
) -> list[TrainPrompt]:
    """One workload's prompts of the first `recipe.rows` rows that are not among those `seen`.

    Args:
        recipe: of that workload, with a number of rows.
        seen: what is passed over for the next rows.
        tokenizer: the model's.
        positions, limits: see `read_prompts`.

    Raises:
        UserError: where fewer are left.
    """
    from backends.training.exits import data as exit_data

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
                f"{recipe.workloads[0]} are left without those of {seen.of}; take fewer or another "
                "--source, or train on fewer"
            ) from None
        fresh = [prompt for prompt in read if prompt not in seen]
        known = len(read) - len(fresh)
        if drawn - known >= wanted:
            return fresh
        drawn = wanted + known


def _trained_rows(report: Path, directory: Path, tokenizer: Any) -> SeenRows:
    """Those that the recipe in the report names. Where they cannot be read again, the report's
    marks of their prompts do; older reports have none."""
    from backends.training.exits import data as exit_data
    from backends.training.exits.backbone import architecture_of
    from backends.training.exits.recipe import ExitRecipe, check_recipe

    marks: frozenset[str] = frozenset()
    try:
        about = json.loads(report.read_text(encoding="utf-8"))
        told, marks = about["recipe"], read_marks(about.get(MARKS, ""))
        recipe = ExitRecipe("", (), tuple(told["workloads"]), source=told["source"])
        recipe = replace(recipe, rows=told["rows"], seed=told["seed"], held_out=told["held_out"])
        recipe = replace(recipe, workload_options=told.get("workload_options"))
        check_recipe(recipe)
        if not isinstance(recipe.source, str) or type(recipe.seed) is not int:
            raise TypeError("source is no text or seed no whole number")
        limits = dict.fromkeys(recipe.workloads, told.get("max_new_tokens"))
        given = {name: most for name, most in limits.items() if most is not None}
        positions = architecture_of(directory).positions
        read = exit_data.read_prompts(recipe, tokenizer, positions, given)
        if told.get("prompts") not in (None, exit_data.prompts_checksum(read)):
            raise ValueError(f"source '{recipe.source}' gives other rows or prompts by now")
    except (UserError, OSError, ValueError, KeyError, TypeError) as error:
        if marks:
            return SeenRows(marks=marks)
        raise UserError(
            f"{report}: the rows of this training cannot be kept out of the calibration, as they "
            f"cannot be read again: {one_line(error)}"
        ) from None
    read_now = frozenset(prompt_mark(prompt.ids) for prompt in read)
    return SeenRows(rows=frozenset(p.row for p in read), marks=marks | read_now)


def _earlier_marks(name: str) -> frozenset[str]:
    """Of the prompts of a calibration, from its file or the first line of its answers'."""
    path = user_path(name, "--without")
    try:
        text = read_text(path, MOST_BYTES)
        begun = text.partition("\n")[0]
        content = json.loads(text if begun == "{" else begun)
        if not (found := read_marks(content.get("identity", content)[MARKS])):
            raise ValueError(f"'{MARKS}' is empty")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"--without: {path}: does not say which prompts it is of ({one_line(error)}); expected "
            "a file that 'decodebench calibrate' wrote, or the answers beside it"
        ) from None
    return found
