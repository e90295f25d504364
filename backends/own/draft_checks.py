"""Whether a method's options fit the model, and what it reads beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.checkpoints import models
from backends.checkpoints.draft_models import AUTO
from backends.own.backend import LONGEST, EngineBackend, check_fit
from backends.own.sublayer_sets import find_set, read_set
from harness.core.errors import UserError

if TYPE_CHECKING:
    from backends.engine.model.architecture import Architecture

NAME = "speculative"
PREFIX = f"backend '{NAME}': option"
Options = Mapping[str, Any]


def check_draft(folder: Path, options: Options) -> None:
    """Raise `UserError` for a draft model that the engine cannot take."""
    found = models.architecture(folder)
    if found not in EngineBackend.families:
        raise UserError(f"{PREFIX} 'draft': {folder}: architecture {found} is not one it takes")
    try:
        check_fit(NAME, folder, options)
    except UserError as error:
        raise UserError(f"{PREFIX} 'draft': {error}") from None


def check_sublayers(model_dir: Path, shape: Architecture, options: Options) -> None:
    """Raise `UserError` for a set that is missing or another model's."""
    read_set(find_set(PREFIX, options["sublayers"], model_dir), model_dir, shape.layers)


def sublayer_files(model_dir: Path, options: Options) -> list[Path]:
    """The set of sublayers. Raises `UserError`."""
    return [find_set(PREFIX, options["sublayers"], model_dir)]


def check_skip(model_dir: Path, shape: Architecture, options: Options) -> None:
    """Raise `UserError` for a model that has nothing to leave out."""
    if shape.layers < 2:
        raise UserError(f"{PREFIX} 'method': swift needs 2 layers or more; the model has one")


def check_lookahead(model_dir: Path, shape: Architecture, options: Options) -> None:
    """Raise `UserError` for windows that no pass or context holds, and kernels without trees."""
    import torch

    from backends.engine.executors.trees import MOST_TREE_ROWS

    if torch.cuda.is_available() and options["kernels"] != "torch":
        raise UserError(
            f"{PREFIX} 'kernels': the Triton kernels verify one guess for each position, lookahead "
            "has several; expected 'kernels: torch'"
        )
    window, ngram, guesses = options["window"], options["ngram"], options["guesses"]
    longest = options["max_model_len"] or min(shape.positions, LONGEST)
    if (rows := (window + guesses) * (ngram - 1)) > MOST_TREE_ROWS:
        raise UserError(
            f"{PREFIX} 'window': (window {window} + guesses {guesses}) x (ngram {ngram} - 1) are "
            f"{rows} rows a pass; expected at most {MOST_TREE_ROWS}"
        )
    if window + ngram > longest:
        raise UserError(
            f"{PREFIX} 'window': window {window} + ngram {ngram} are more than a context of "
            f"{longest} tokens has"
        )
    if options["drafts"] != AUTO and options["drafts"] >= ngram:
        raise UserError(
            f"{PREFIX} 'drafts': is {options['drafts']}; expected at most ngram - 1, {ngram - 1}"
        )
