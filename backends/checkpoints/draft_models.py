"""Which checkpoint drafts for a model, and whether it can."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from harness.core.errors import UserError
from harness.core.nouns import Model

AUTO = "auto"


def find_draft(prefix: str, name: str, model_dir: Path) -> Path:
    """The folder that `name` means for a model: "auto" (the demo model's), a bundled name, a path,
    a hub id. Raises `UserError`, which begins with `prefix`, where there is none."""
    if not name:
        raise UserError(
            f"{prefix} 'draft': is empty; expected a bundled name, a folder or a hub id"
        )
    if name == AUTO:
        if not models.is_demo(model_dir):
            raise UserError(f"{prefix} 'draft': this model has no bundled draft model; name one")
        name = "demo-draft"
    try:
        return models.resolve(Model(name))
    except UserError as error:
        raise UserError(f"{prefix} 'draft': {error}") from None


def draft_files(folder: Path) -> list[Path]:
    """What decides its drafts."""
    return [folder / "config.json", *sorted(folder.glob("*.safetensors"))]


def check_lookup(prefix: str, options: Mapping[str, Any]) -> None:
    """Raise `UserError` for n-grams of at least more tokens than of at most."""
    if options["lookup_min"] > options["lookup_max"]:
        raise UserError(
            f"{prefix} 'lookup_min': is {options['lookup_min']}; expected at most lookup_max, "
            f"{options['lookup_max']}"
        )


def check_tokens(prefix: str, draft: Path, model_dir: Path, *, same: bool) -> None:
    """Raise `UserError` for a draft without a tokenizer and, where they have to be the `same`,
    unless both read and write the same tokens, padding included."""
    try:
        theirs = _vocabulary(draft)
    except UserError as error:
        raise UserError(f"{prefix} 'draft': {error}") from None
    if not same:
        return
    ours = _vocabulary(model_dir)
    if theirs == ours:
        rows, own = (models.read_config(f).get("vocab_size") for f in (draft, model_dir))
        if rows != own:
            raise UserError(
                f"{prefix} 'draft': {draft / 'config.json'}: vocab_size: is {rows}; expected the "
                f"model's {own}"
            )
        return
    other = next((token for token, at in ours.items() if theirs.get(token) != at), None)
    where = f"token {other!r} is {theirs.get(other)} there and {ours[other]} here" if other else (
        f"it knows {len(theirs)} tokens, the model {len(ours)}"
    )  # fmt: skip
    raise UserError(
        f"{prefix} 'draft': {draft}: has another tokenizer ({where}); expected the model's"
    )


def check_length(prefix: str, draft: Path, longest: int | None) -> None:
    """Raise `UserError` for a draft model that is not meant for sequences of `longest` tokens."""
    positions = models.read_config(draft).get("max_position_embeddings")
    if isinstance(positions, int) and longest is not None and positions < longest:
        raise UserError(
            f"{prefix} 'draft': {draft / 'config.json'}: is meant for {positions} positions; "
            f"'max_model_len: {positions}' or less would fit, and {longest} does not"
        )


def longest_sequence(model_dir: Path, max_model_len: int | None) -> int | None:
    """Positions that a sequence may have; None where nothing says."""
    found = max_model_len or models.read_config(model_dir).get("max_position_embeddings")
    return found if isinstance(found, int) else None


def check_drafts(prefix: str, drafts: int, model_dir: Path, max_model_len: int | None) -> None:
    """Raise `UserError` for more drafts than the longest sequence has room for, beside a prompt and
    the token that their verification brings."""
    longest = longest_sequence(model_dir, max_model_len)
    if longest is not None and drafts > longest - 2:
        raise UserError(
            f"{prefix} 'drafts': is {drafts}; expected at most {longest - 2} in a context of "
            f"{longest} tokens"
        )


def _vocabulary(folder: Path) -> dict[str, int]:
    return dict(models.prompt_tokenizer(folder).get_vocab())
