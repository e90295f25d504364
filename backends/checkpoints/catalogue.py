"""What ``decodebench list models`` shows: the bundled models and the shapes that have a name."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.shapes.folder import read_shape
from backends.checkpoints.shapes.ladder import LADDER
from backends.checkpoints.shapes.sizes import Sizes, read_sizes
from backends.engine.model.architecture import FAMILIES
from harness.core.nouns import Model


def catalogue() -> list[dict[str, Any]]:
    """By name: kind ("bundled" or "shape"), whether the files are there (a shape's are generated
    at first use), layers, width, vocabulary, parameters, and the bytes of weights in bf16 that
    decoding one token reads; null for classifiers, which decode none."""
    found = []
    for name, directory in sorted(models.BUNDLED.items()):
        present = (directory / "config.json").is_file()
        config = models.read_config(directory) if present else {}
        if present and config["architectures"][0] not in FAMILIES:
            found.append(_row(name, "bundled", True, None) | _classifier(config, directory))
            continue
        sizes = read_sizes(config, str(directory)) if present else None
        found.append(_row(name, "bundled", present, sizes))
    for name in LADDER:
        shape = read_shape(Model(name, shape=True))
        found.append(_row(name, "shape", shape.folder.is_dir(), shape.sizes))
    return found


def _row(name: str, kind: str, present: bool, sizes: Sizes | None) -> dict[str, Any]:
    told = ("layers", "width", "vocabulary", "parameters", "bytes_per_token")
    numbers = {key: None if sizes is None else getattr(sizes, key) for key in told}
    return {"name": name, "kind": kind, "present": present, **numbers}


def _classifier(config: Mapping[str, Any], directory: Path) -> dict[str, int]:
    from safetensors import safe_open

    widths = config.get("widths") or [config["hidden_size"]] * config["num_hidden_layers"]
    with safe_open(directory / "model.safetensors", framework="numpy") as weights:
        names = weights.keys()
        shapes = [weights.get_slice(name).get_shape() for name in names]
    return {
        "layers": len(widths),
        "width": max(widths),
        "vocabulary": config["vocab_size"],
        "parameters": sum(map(prod, shapes)),
    }
