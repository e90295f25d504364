"""What trained exit heads or a classifier depend on, and the folder that may hold them, checked
before any work."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backends.checkpoints.bound_files import CLASSIFIER, HEADS, REPORTS, write_json
from backends.checkpoints.classifier import open_classifier
from backends.checkpoints.draft_heads.files import TENSORS
from backends.checkpoints.exit_heads import open_folder
from backends.checkpoints.models import one_line
from backends.training.folders import check_out
from harness.core.errors import UserError, nearest
from harness.core.files import only_writer, remove_stale
from workloads import OWN, WORKLOADS
from workloads.own.rows import NO_FILE
from workloads.readers import SUFFIXES

STATE = "state"
"""Subfolder of a run under way: its recipe, answers, hidden states and optimizer."""
BEGUN = f"{STATE}/recipe.json"
FROM_FILES = tuple(name for name, info in OWN.items() if not info.default_source)
"""Workloads whose prompts are the user's own."""
_OPTIONS = {"rate": "lr", "workloads": "workload", "workload_options": "workload-option"}
"""By field of a recipe, the command line's option where it is not the field's own name."""
_NO_OPTION = ("warm_up", "held_out")
"""Fields that another version of a training may have set otherwise, and no user."""
_NOT_COMPARED = ("revision", "prompts")
"""Fields that may differ, or that others tell better."""


@dataclass(frozen=True, slots=True)
class ExitRecipe:
    """Everything that a training depends on, apart from the machine's floating point.

    The schedule's defaults are the paper's (AdaDecode, appendix D): Adam, rate 5e-3, cosine with
    3% warm-up, 128 responses a step, 100 epochs. `patience` is ours: training ends when no
    held-out loss (of a layer's head, or the classifier's) has fallen by a thousandth of itself for
    so many epochs.
    """

    checkpoint: str
    layers: tuple[int, ...]
    workloads: tuple[str, ...]
    kind: str = "lightweight"
    """One of `exit_heads.KINDS` or `draft_heads.KINDS`, or "classifier"."""
    source: str = "bundled"
    rows: int | None = None
    """Rows of each workload; None takes `exits.data.ROWS`, or all where there are fewer."""
    epochs: int = 100
    rate: float = 5e-3
    batch: int = 128
    seed: int = 0
    patience: int = 10
    warm_up: float = 0.03
    held_out: float = 0.1
    """Share of each workload's rows that is measured on and not trained on."""
    max_new_tokens: int | None = None
    """Of an answer; None takes each workload's `answer_tokens`."""
    workload_options: Mapping[str, Mapping[str, Any]] | None = None
    """By workload: which rows, and how they are cut, as an experiment has it."""
    revision: str | None = None
    """Of a hub id, as the user gave it; the checksum decides what is the same model."""
    prompts: str = ""
    """Checksum of what those rows became: a source, or a prompt's form, may change."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON holds them."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    def limits(self) -> dict[str, int]:
        """The most tokens of an answer, by workload, where they were chosen."""
        return (
            {}
            if self.max_new_tokens is None
            else dict.fromkeys(self.workloads, self.max_new_tokens)
        )


def check_recipe(recipe: ExitRecipe) -> None:
    """Raise `UserError` for values that no training can use; the layers are checked elsewhere."""
    known = (*WORKLOADS, *FROM_FILES)
    for number, name in enumerate(recipe.workloads):
        if name.lower().endswith(SUFFIXES):
            raise UserError(
                f"--workload: '{name}' is a file of your own: --workload jsonl --source {name}"
            )
        if name not in known:
            raise UserError(f"--workload: unknown workload '{name}'; {nearest(name, known)}")
        if name in FROM_FILES and recipe.source in NO_FILE:
            raise UserError(
                f"--source: workload {name} is of your own prompts; expected their file, got "
                f"'{recipe.source}'"
            )
        if name in recipe.workloads[:number]:
            raise UserError(f"--workload: '{name}' is named twice")
    if not recipe.workloads:
        raise UserError(f"--workload: none is named; {nearest('', known)}")
    for option, value in (
        ("epochs", recipe.epochs),
        ("batch", recipe.batch),
        ("patience", recipe.patience),
    ):
        if value < 1:
            raise UserError(f"--{option}: expected at least 1, got {value}")
    if recipe.max_new_tokens is not None and recipe.max_new_tokens < 2:
        raise UserError(
            "--max-new-tokens: expected at least 2 (an exit is learnt from the second on), got "
            f"{recipe.max_new_tokens}"
        )
    if recipe.rows is not None and recipe.rows < 2:
        raise UserError(f"--rows: expected at least 2 (one is held out), got {recipe.rows}")
    for name in recipe.workload_options or {}:
        if name not in recipe.workloads:
            raise UserError(
                f"--workload-option: no workload '{name}' here; {nearest(name, recipe.workloads)}"
            )
    if not (math.isfinite(recipe.rate) and recipe.rate > 0):
        raise UserError(f"--lr: expected a positive number, got {recipe.rate}")


@contextmanager
def held(out: Path, recipe: ExitRecipe, model: Path) -> Iterator[dict[str, Any] | None]:
    """Hold `out` against other trainings. Gives the report that this recipe's finished run left
    there; None when there is work to do.

    Raises:
        UserError: when another training holds the folder, or it belongs to another checkpoint or
            recipe, holds the model or what no training wrote, or is no folder; where a finished
            run's tensors are gone or broken; and for a GPU that is too small for what is done
            meanwhile.
    """
    import torch

    check_out(out, (*REPORTS, BEGUN), model)
    with only_writer(out, "training"):
        try:
            yield _finished(out, recipe, model)
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"the GPU has too little memory for this training ({one_line(error)})"
            ) from None


def _finished(out: Path, recipe: ExitRecipe, model: Path) -> dict[str, Any] | None:
    state = out / STATE
    begun = (out / BEGUN).is_file()
    remove_stale(state, Path(BEGUN).name)  # of one that was killed while it claimed the folder
    if state.exists() and not begun and not (state.is_dir() and not any(state.iterdir())):
        raise UserError(f"--out: {state} is not of a training; choose another folder")
    finished = None
    for path in (*(out / name for name in REPORTS), out / BEGUN):
        if path.is_file():
            content = _read(path)
            _check_same(path, content["recipe"], recipe.to_dict())
            if content.get("finished"):
                _check_whole(path, model)
                finished = content
    if finished is not None:
        drop_state(out)
    return finished


def _check_whole(report: Path, model: Path) -> None:
    """Raise `UserError` where a finished run's report stands without what was learnt."""
    from safetensors import SafetensorError, safe_open

    try:
        if report.name == HEADS:
            open_folder(report.parent, model)
        elif report.name == CLASSIFIER:
            open_classifier(report.parent, model)
        else:
            with safe_open(report.parent / TENSORS, framework="pt") as tensors:
                tensors.keys()
    except (UserError, OSError, SafetensorError) as error:
        raise UserError(
            f"{report}: this training had come to its end, and what it learnt cannot be read "
            f"({one_line(error)}); remove {report.parent} for the same command to train anew, or "
            "choose another folder"
        ) from None


def claim_folder(out: Path, recipe: ExitRecipe) -> None:
    """Make `out` this recipe's folder."""
    (out / STATE).mkdir(parents=True, exist_ok=True)
    write_json(out / BEGUN, {"recipe": recipe.to_dict()})


def drop_state(out: Path) -> None:
    """Remove the state of a finished run. Its recipe goes last, so that the same command knows what
    a kill leaves of it."""
    for path in (out / STATE).glob("*"):
        if path != out / BEGUN:
            with suppress(OSError):
                path.unlink()
    shutil.rmtree(out / STATE, ignore_errors=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not readable as JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("recipe"), dict):
        raise UserError(f"{path}: not written by this command; choose another folder")
    return content


def _check_same(path: Path, there: dict[str, Any], own: dict[str, Any]) -> None:
    if there.get("checkpoint") != own["checkpoint"]:
        raise UserError(
            f"{path}: trained for another checkpoint ({_revised(there)}, the model has "
            f"{_revised(own)}); choose another folder"
        )
    if there.get("kind") != own["kind"]:
        raise UserError(
            f"{path}: kind was {there.get('kind')} in the run begun there, expected {own['kind']}; "
            "choose another folder or that value"
        )
    unlike = [key for key in own if there.get(key) != own[key] and key not in _NOT_COMPARED]
    if unlike:
        raise UserError(
            f"{path}: the run begun there has {_given(there, unlike)}, this one "
            f"{_given(own, unlike)}; choose another folder or the same values"
        )
    if there.get("prompts") != own["prompts"]:
        raise UserError(
            f"{path}: the rows of source '{own['source']}', or the prompts made of them, were "
            "others in the run begun there; choose another folder"
        )


def _revised(recipe: dict[str, Any]) -> str:
    """A checkpoint's first digits, and its revision where one was named."""
    named = recipe.get("revision")
    return f"{str(recipe.get('checkpoint'))[:12]}" + (f" of revision {named}" if named else "")


def _given(recipe: dict[str, Any], keys: list[str]) -> str:
    """Fields of a recipe as one gives them to the command."""
    return ", ".join(_option(key, recipe.get(key)) for key in keys)


def _option(key: str, value: Any) -> str:
    name = key if key in _NO_OPTION else f"--{_OPTIONS.get(key, key.replace('_', '-'))}"
    if value is None:
        return f"no {name}"
    if isinstance(value, dict):
        return " ".join(
            f"{name} {workload}.{field}={chosen}"
            for workload, fields in value.items()
            for field, chosen in fields.items()
        )
    return f"{name} {','.join(map(str, value)) if isinstance(value, list) else value}"
