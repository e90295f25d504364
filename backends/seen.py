"""Which of a trial's prompts the files of its options were trained or calibrated on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from backends import asking, load_class, settings
from backends.checkpoints import classifier, exit_heads
from backends.checkpoints.bound_files import MARKS, MOST_BYTES, prompt_mark, read_marks
from backends.checkpoints.draft_heads import files as draft_heads
from harness.core.errors import UserError
from harness.core.files import read_text

_REPORTS = (exit_heads.ABOUT, classifier.ABOUT, draft_heads.ABOUT)


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
        for report in _REPORTS
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
