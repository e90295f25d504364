"""What the commands of the pipeline are told in files."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import UserError
from harness.core.files import MIB, read_text

if TYPE_CHECKING:
    from backends.tetris.pipeline.leaving import LeaveDecisions

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


def log_decisions(
    path: Path,
    layers: int,
    ramps: Collection[int] | None,
    inputs: int | None = None,
    whose: str = "profile",
) -> tuple[LeaveDecisions, tuple[int, ...]]:
    """Who leaves where by a log of ramps, for so many inputs or each of the log once, and behind
    which layers it has a ramp. Raises `UserError`, also where the profile (or model) tells its
    ramps and has none there."""
    from backends.tetris.pipeline import leaving

    log = leaving.log_from(read_json(path, MOST_LOG_BYTES), str(path), layers)
    after = tuple(one for one in log.after if one < layers)
    for one in after:
        if ramps is not None and one not in ramps:
            raise UserError(f"{path}: after: the {whose} has no ramp behind layer {one}")
    return leaving.logged(log, layers, len(log.leaves) if inputs is None else inputs), after


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key '{key}' stands twice")
        found[key] = value
    return found
