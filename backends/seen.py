"""Which prompts heads, classifiers and calibrations were fitted to: marks of them stand in their
files, so that a trial that asks them again can say so."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from backends import asking, load_class, settings
from backends.checkpoints.bound_files import MOST_BYTES, REPORTS
from harness.core.errors import UserError
from harness.core.files import read_text
from harness.core.nouns import canonical_json

MARKS = "prompt_marks"
"""Key of `joined_marks` in what was trained or calibrated on prompts; older files have none."""
_DIGITS = 16


def prompt_mark(token_ids: Sequence[int]) -> str:
    """16 hex digits that tell a prompt from others, by its tokens."""
    content = canonical_json(list(token_ids)).encode()
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def joined_marks(prompts: Iterable[Sequence[int]]) -> str:
    """The marks of prompts, as token ids, in one text: sorted, each once."""
    return "".join(sorted({prompt_mark(ids) for ids in prompts}))


def read_marks(joined: Any) -> frozenset[str]:
    """The inverse of `joined_marks`. Raises `ValueError` for what it does not write."""
    if not isinstance(joined, str) or len(joined) % _DIGITS:
        raise ValueError(f"{MARKS}: expected {_DIGITS} digits for each prompt")
    return frozenset(joined[at : at + _DIGITS] for at in range(0, len(joined), _DIGITS))


def seen_prompts(
    name: str,
    model_dir: Path,
    options: Mapping[str, Any],
    prompts: Iterable[Sequence[int]],
) -> dict[str, int]:
    """How many of these prompts, as token ids, were trained or calibrated on: by the file, as
    folder and name, that says so. Only files that say it count, and those with any are there."""
    try:
        with asking(name, "files"):
            paths = load_class(name).files(model_dir, settings(name, options))
    except UserError:  # which opening it has said or will say
        return {}
    told = [path for path in paths if path.suffix == ".json"]
    told += [
        path.parent / report
        for path in paths
        for report in REPORTS
        if path.suffix == ".safetensors"
    ]
    own = {prompt_mark(ids) for ids in prompts}
    found = {path: len(own & _marks(path)) for path in dict.fromkeys(told)}
    return {f"{path.parent.name}/{path.name}": count for path, count in found.items() if count}


def _marks(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    try:
        return read_marks(json.loads(read_text(path, MOST_BYTES)).get(MARKS, ""))
    except (OSError, UserError, ValueError, AttributeError, RecursionError):
        return frozenset()
