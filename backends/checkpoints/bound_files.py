"""JSON files that belong to one checkpoint, by its checksum: what was trained on its states.

Written by training, read by the backends that use it; both names of the binding stand here alone.
The tensors beside them are written through `replacing_tensors`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from harness.core.errors import UserError
from harness.core.files import MIB, read_text, replacing, write_atomic

HEADS, CLASSIFIER, DRAFT_HEAD = "heads.json", "classifier.json", "draft_head.json"
REPORTS = (HEADS, CLASSIFIER, DRAFT_HEAD)
"""What makes a folder a finished one of a training, or one that was stopped after some epoch."""
MOST_BYTES = 64 * MIB
LINES_DOWN_TO = 5
"""Depth of nesting at which a JSON object stays on its line: a layer's figures in a report."""


def read_bound(where: Path, model_dir: Path, form: int, *keys: str) -> dict[str, Any]:
    """The JSON object in `where`, which has the `keys` and whose `format` and `checkpoint` fit.

    Raises:
        UserError: when the file cannot be read, lacks a key, is of another format than `form`,
            or was made for another checkpoint than the one in `model_dir`.
    """
    try:
        about: dict[str, Any] = json.loads(read_text(where, MOST_BYTES))
        found, checkpoint, *_ = [about[key] for key in ("format", "checkpoint", *keys)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{where}: not readable: {models.one_line(error)}") from None
    if found != form:
        raise UserError(f"{where}: format {found!r}; this version reads {form}")
    if checkpoint != models.checksum(model_dir):
        raise UserError(
            f"{where}: trained for another checkpoint (sha256 {str(checkpoint)[:12]}"
            f"{_revision(about)}), not for {model_dir} ({models.checksum(model_dir)[:12]})"
        )
    return about


def _revision(about: dict[str, Any]) -> str:
    """Of the model that it was made for, where the user named one."""
    recipe = about.get("recipe")
    named = about.get("revision") or (recipe.get("revision") if isinstance(recipe, dict) else None)
    return f" of revision {named}" if named else ""


def write_bound(
    where: Path, checkpoint: str, form: int, content: Mapping[str, Any]
) -> dict[str, Any]:
    """Write `content` as the file that `read_bound` takes for format `form` of the checkpoint with
    this checksum, and return the whole of it. Raises `OSError`."""
    whole = {"format": form, "checkpoint": checkpoint, **content}
    write_json(where, whole)
    return whole


@contextmanager
def replacing_tensors(target: Path) -> Iterator[Path]:
    """`replacing` for what torch or safetensors write, whose own errors name neither the file nor,
    in torch's case, the full disk. Raises `UserError` and `OSError`."""
    from safetensors import SafetensorError

    try:
        with replacing(target) as temporary:
            yield temporary
    except (RuntimeError, SafetensorError) as error:
        raise UserError(
            f"{target}: not written, is the disk full? ({models.one_line(error)})"
        ) from None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON, whole or not at all. Raises `OSError`."""
    write_atomic(path, (_laid_out(content, 0) + "\n").encode())


def _laid_out(value: Any, depth: int) -> str:
    """JSON with the outer objects on lines of their own and one layer's figures on one."""
    if not isinstance(value, dict) or not value or depth == LINES_DOWN_TO:
        return json.dumps(value, allow_nan=False)
    inner = [f"{json.dumps(key)}: {_laid_out(own, depth + 1)}" for key, own in value.items()]
    margin = "\n" + " " * depth
    return "{" + ",".join(f"{margin} {line}" for line in inner) + margin + "}"
