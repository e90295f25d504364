"""JSON files that belong to one checkpoint, by its checksum: what was trained on its states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from harness.core.errors import UserError
from harness.core.files import MIB, read_text

MOST_BYTES = 64 * MIB


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
            f"{where}: trained for another checkpoint (sha256 {str(checkpoint)[:12]}), not for "
            f"{model_dir} ({models.checksum(model_dir)[:12]})"
        )
    return about
