"""Where a training may write: never over a checkpoint that is not its own."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from harness.core.errors import UserError


def check_out(out: Path, ours: Collection[str], *models: Path) -> None:
    """Raise `UserError` for a folder that a training would spoil: a model that it reads, another
    checkpoint, or a file.

    Args:
        out: may or may not exist.
        ours: files in it, any of which says that it is this command's.
        models: folders of the checkpoints that the training reads.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"--out: {out} is a file; expected a folder")
    if out.resolve() in {model.resolve() for model in models}:
        raise UserError(f"--out: {out} is the model's own folder; expected another")
    if any((out / name).is_file() for name in ours):
        return
    there = sorted(path.name for path in (*out.glob("*.safetensors"), *out.glob("config.json")))
    if there:
        raise UserError(
            f"--out: {out} holds {there[0]}, which this command has not written; choose another "
            "folder"
        )
