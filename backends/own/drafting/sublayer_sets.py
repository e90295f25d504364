"""Folders that say which sublayers a model leaves out when it drafts for itself.

A folder has ``sublayers.json``: two lists of layers, counted from 0, and how they were found. It
belongs to one checkpoint, by checksum; the wrong pair is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.bound_files import read_bound
from backends.engine.model.architecture import EngineError
from backends.engine.sublayers.sets import Sublayers, check_left_out
from harness.core.errors import UserError, nearest
from harness.core.files import user_path

BUNDLED = models.DEMO / "sublayers"
FORMAT = 1
ABOUT = "sublayers.json"
AUTO = "auto"
ATTENTION, MLP = "skipped_attention", "skipped_mlp"


def find_set(prefix: str, name: str, model_dir: Path) -> Path:
    """The file that `name` means for a model: "auto" (the demo model's) or a folder's. Raises
    `UserError`, which begins with `prefix`."""
    if name == AUTO:
        if not models.is_demo(model_dir):
            raise UserError(
                f"{prefix} 'sublayers': this model has no bundled set; find one with 'decodebench "
                f"train sublayers --model {model_dir} --workload gsm8k --out DIR' and name DIR"
            )
        return BUNDLED / ABOUT
    path = user_path(name, f"{prefix} 'sublayers'")
    if not path.is_dir():
        raise UserError(f"{prefix} 'sublayers': no folder '{name}'; {nearest(name, [AUTO])}")
    return path / ABOUT


def read_set(where: Path, model_dir: Path, layers: int) -> Sublayers:
    """The set in a file. Raises `UserError` when the file is broken, was made for another
    checkpoint than the one in `model_dir`, or names what a model of so many layers has not got."""
    about = read_bound(where, model_dir, FORMAT, ATTENTION, MLP)
    found = Sublayers(*(_layers(where, about, key) for key in (ATTENTION, MLP)))
    try:
        check_left_out(found, layers)
    except EngineError as error:
        raise UserError(f"{where}: {error}") from None
    return found


def _layers(where: Path, about: dict[str, Any], key: str) -> frozenset[int]:
    named = about[key]
    if not isinstance(named, list) or any(type(layer) is not int for layer in named):
        raise UserError(f"{where}: {key}: is {named!r}; expected a list of layers, counted from 0")
    return frozenset(named)
