"""Where the checkpoint of a shape is: generated at first use into the user's cache folder.

``shapes/NAME-DIGEST/`` below it is a checkpoint like any other, under a digest of all that decides
its content (`making`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.shapes.ladder import LADDER
from backends.checkpoints.shapes.making import folder, made, progress, write_texts
from backends.checkpoints.shapes.sizes import BF16_BYTES, Sizes, read_sizes
from backends.checkpoints.shapes.weights import SEED, tensors, write_weights
from harness.core.errors import UserError, nearest
from harness.core.files import user_path
from harness.core.nouns import Model, canonical_json

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape that can be generated."""

    name: str
    """Of its folder, without the digest."""
    config: dict[str, Any]
    sizes: Sizes
    depth: int
    """Layers of the whole model, of which `sizes` may have the first only."""

    @property
    def folder(self) -> Path:
        """Where it is, or will be."""
        content = canonical_json([SEED, self.config, self.depth])
        state = hashlib.sha256(content.encode())
        for name in TOKENIZER:
            state.update((models.DEMO / "target" / name).read_bytes())
        return folder() / f"{self.name}-{state.hexdigest()[:12]}"

    @property
    def weight_bytes(self) -> int:
        """Of the weights in bfloat16."""
        return BF16_BYTES * self.sizes.parameters


def read_shape(model: Model, vocabulary: int | None = None) -> Shape:
    """What a shape's name and layers mean, with another vocabulary where one is given. Writes
    nothing. Raises `UserError` for an unknown name, a configuration that cannot be read or made, a
    vocabulary without the demo's tokens, and more layers than there are."""
    where, config = _config(model)
    if vocabulary is not None:
        config["vocab_size"] = vocabulary
    try:
        canonical_json(config)
    except ValueError:
        raise UserError(f"{where}: expected finite numbers, found NaN or infinity") from None
    whole = read_sizes(config, where)
    layers = whole.layers if model.layers is None else model.layers
    if not 1 <= layers <= whole.layers:
        raise UserError(
            f"{where}: layers: {layers} of {whole.layers}; expected 1 to {whole.layers}"
        )
    least = models.read_config(models.DEMO / "target")["vocab_size"]
    if whole.vocabulary < least:
        raise UserError(
            f"{where}: vocab_size: is {whole.vocabulary}; expected at least {least}, since prompts "
            "are made of the demo model's tokens"
        )
    kinds = config.get("layer_types")
    cut = {
        "num_hidden_layers": layers,
        **({"layer_types": kinds[:layers]} if isinstance(kinds, list) else {}),
        "torch_dtype": "bfloat16",
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
    }
    config = {k: v for k, v in config.items() if k not in ("dtype", "auto_map")} | cut
    name = _file_name(replace(model, layers=None) if layers == whole.layers else model)
    return Shape(name, config, replace(whole, layers=layers), whole.layers)


def generated(model: Model, vocabulary: int | None = None) -> Path:
    """The checkpoint folder of a shape, written now unless it is there.

    Raises `UserError` as `read_shape` does, and for a shape that the disk has no room for or that
    would make the folder of shapes larger than it may be: before anything is written. Likewise for
    one in the folder that is damaged.
    """
    shape = read_shape(model, vocabulary)
    target = shape.folder

    def write(making: Path) -> dict[str, str]:
        _write_texts(making, shape.config)
        with progress(f"shape {model.label()}", shape.weight_bytes, target) as tell:
            return write_weights(making, tensors(shape.sizes, shape.depth), tell)

    return made(target, f"model '{model.label()}'", shape.weight_bytes, write)


@contextlib.contextmanager
def outline(model: Model, vocabulary: int | None = None) -> Iterator[Path]:
    """A folder with a shape's checkpoint but for the weights, for as long as the block runs: what
    does not depend on them can be refused before they are made. A `UserError` out of the block
    names the user's file in place of the folder's. Raises what `read_shape` does."""
    shape = read_shape(model, vocabulary)
    with tempfile.TemporaryDirectory() as name:
        _write_texts(Path(name), shape.config)
        try:
            yield Path(name)
        except UserError as error:
            where, _ = _config(model)
            line = re.sub(rf"{re.escape(name)}/\w+\.json", lambda _: where, str(error))
            raise UserError(line) from None


def _config(model: Model) -> tuple[str, dict[str, Any]]:
    """What begins an error line about the configuration, and the configuration."""
    if model.name in LADDER:
        return f"shape '{model.name}'", dict(LADDER[model.name])
    path = user_path(model.name, "shape")
    if path.is_dir():
        raise UserError(
            f"shape '{model.name}': expected a config.json, found a folder; name a file in it"
        )
    if not path.exists():
        raise UserError(
            f"shape '{model.name}': no such file, and not a name; {nearest(model.name, LADDER)}"
        )
    return str(path), models.read_json(path)


def _file_name(model: Model) -> str:
    name = model.name
    if name not in LADDER:
        path = user_path(name, "shape").resolve()
        name = f"{path.parent.name}-{path.stem}"
        if path.parent.parent == folder().resolve():  # a shape made of one that was made
            name = path.parent.name.rpartition("-")[0]
    layers = "" if model.layers is None else f"-{model.layers}-layers"
    return (re.sub(r"[^\w.-]+", "-", name).strip("-.")[:60] or "shape") + layers


def _write_texts(directory: Path, config: dict[str, Any]) -> None:
    """Configuration and the demo's tokenizer, without a token that ends an answer."""
    source = models.DEMO / "target"
    tokenizer = models.read_json(source / "tokenizer_config.json")
    del tokenizer["eos_token"]
    contents = {
        "config.json": json.dumps(config, indent=2),
        "generation_config.json": json.dumps({"do_sample": False}),
        "tokenizer_config.json": json.dumps(tokenizer, indent=2),
        "tokenizer.json": (source / "tokenizer.json").read_text(encoding="utf-8"),
    }
    write_texts(directory, contents)
