"""What the commands of the pipeline are told in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.files import MIB, read_text

MOST_BYTES = 4 * MIB
MOST_LOG_BYTES = 512 * MIB
"""Of what ramps said of inputs."""


def read_json(path: Path, most_bytes: int = MOST_BYTES) -> Any:
    """A file's JSON. Raises `UserError` with its name for what cannot be read, is no JSON, is
    longer or has a key twice."""
    try:
        text = read_text(path, most_bytes)
        return json.loads(text, object_pairs_hook=_once)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UserError(f"{path}: cannot be read: {reason.lower()}") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise UserError(f"{path}: not valid JSON: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key '{key}' stands twice")
        found[key] = value
    return found
