"""Which shape drafts for a model whose decisions are replayed, and what it takes over from it.

A draft model writes the model's tokens, so that the shape gets the model's vocabulary: its
embedding and its head grow with it, as they would have been trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.draft_models import AUTO, check_length, check_tokens, find_draft
from backends.checkpoints.shapes import folder
from backends.checkpoints.shapes.ladder import LADDER
from backends.checkpoints.shapes.sizes import read_sizes
from harness.core.errors import UserError
from harness.core.nouns import Model

SIBLINGS: Mapping[str, str] = {
    "0.5b": "0.1b",
    "1b": "0.1b",
    "llama-3.1-8b": "llama-3.2-1b",
    "qwen3-8b": "qwen3-0.6b",
}
"""By shape, the smaller one of its family that drafts for it where none is named."""
SHARE = 6
"""Where there is none: the first layers of the model itself, one of so many."""
_TELLING = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
"""By which a configuration is known as that of a shape with a name, cut short or not."""


@dataclass(frozen=True, slots=True)
class DraftShape:
    """Random weights that draft."""

    label: str
    model: Model
    vocabulary: int

    @contextmanager
    def outline(self) -> Iterator[Path]:
        """See `folder.outline`."""
        with folder.outline(self.model, self.vocabulary) as directory:
            yield directory

    @property
    def folder(self) -> Path:
        """Where it is, or will be."""
        return folder.read_shape(self.model, self.vocabulary).folder

    def generated(self) -> Path:
        """See `folder.generated`."""
        return folder.generated(self.model, self.vocabulary)


def is_shape(name: str) -> bool:
    """Whether an option names a shape, and no checkpoint."""
    return name in LADDER or name.endswith(".json")


def drafting_shape(prefix: str, model_dir: Path, options: Mapping[str, Any]) -> DraftShape | None:
    """What drafts in a replay, by the options `draft` and `replay`; None where a checkpoint does.
    Raises `UserError`, which begins with `prefix`."""
    name = options["draft"]
    if options["replay"] is None or (name == AUTO and models.is_demo(model_dir)):
        return None
    if name == AUTO or is_shape(name):
        return draft_shape(prefix, None if name == AUTO else name, model_dir)
    return None


def draft_folder(prefix: str, model_dir: Path, options: Mapping[str, Any]) -> Path:
    """The draft model: a checkpoint, or random weights in a replay. Raises `UserError`."""
    made = drafting_shape(prefix, model_dir, options)
    return made.generated() if made else find_draft(prefix, options["draft"], model_dir)


def check_drafting(
    prefix: str,
    model_dir: Path,
    options: Mapping[str, Any],
    longest: int | None,
    check_kind: Callable[[Path], object],
    check: Callable[[Path], object] = lambda folder: None,
    *,
    same_tokens: bool = True,
) -> None:
    """Raise `UserError`, which begins with `prefix`, for a draft model that is refused by
    `check_kind`, has other tokens where it needs the `same_tokens`, is meant for sequences shorter
    than `longest`, or is refused by `check`; a shape, which has the model's, is only outlined."""
    made = drafting_shape(prefix, model_dir, options)
    if made is not None and not same_tokens:
        raise UserError(f"{prefix} 'draft': {made.label}: is a shape, which has the model's tokens")
    if made is not None:
        with made.outline() as folder:
            check_length(prefix, folder, longest)
            check(folder)
        return
    folder = find_draft(prefix, options["draft"], model_dir)
    check_kind(folder)
    check_tokens(prefix, folder, model_dir, same=same_tokens)
    check_length(prefix, folder, longest)
    check(folder)


def draft_shape(prefix: str, name: str | None, model_dir: Path) -> DraftShape:
    """The shape that drafts for the model in a folder: `name`, or one that suits it. Raises
    `UserError`, which begins with `prefix`, for one that cannot be made or is larger."""
    config = models.read_config(model_dir)
    sizes = read_sizes(config, str(model_dir / "config.json"))
    label, model = _suited(config, model_dir) if name is None else (name, Model(name, shape=True))
    try:
        own = folder.read_shape(model, sizes.vocabulary).sizes
    except UserError as error:
        raise UserError(f"{prefix} 'draft': {error}") from None
    if own.parameters > sizes.parameters:
        raise UserError(
            f"{prefix} 'draft': {label} has {own.parameters:,} parameters with the model's "
            f"vocabulary; expected no more than the model's {sizes.parameters:,}"
        )
    return DraftShape(label, model, sizes.vocabulary)


def _suited(config: Mapping[str, Any], model_dir: Path) -> tuple[str, Model]:
    for name, sibling in SIBLINGS.items():
        if all(config.get(key) == LADDER[name][key] for key in _TELLING):
            return sibling, Model(sibling, shape=True)
    layers = max(1, int(config["num_hidden_layers"]) // SHARE)
    return (
        f"the model's first {layers} layers",
        Model(str(model_dir / "config.json"), layers=layers, shape=True),
    )
