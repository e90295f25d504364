"""Where the checkpoint of a shape is: generated at first use into the user's cache folder.

``shapes/NAME-DIGEST/`` below it is a checkpoint like any other, under a digest of all that decides
its content. It is written under a temporary name and renamed when it is whole and on the disk; a
lock of the kernel's lets one process write at a time, and ends with it however that ends. What a
killed one leaves is hidden by its name and removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.digests import FileDigests
from backends.checkpoints.shapes.ladder import LADDER
from backends.checkpoints.shapes.sizes import BF16_BYTES, Sizes, read_sizes
from backends.checkpoints.shapes.weights import SEED, write_weights
from harness.core.errors import UserError, nearest
from harness.core.files import cache_folder, rename_folder, sync_folder, user_path
from harness.core.nouns import Model, canonical_json

GIB = 2**30
LOCK = ".lock"
UNFINISHED = ".tmp"
TOLD_FROM_BYTES = 2**28
"""Larger ones take seconds: a line says what is going on."""
ROOM_BYTES = 2**20
"""For the files beside the weights."""
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


def folder() -> Path:
    """Holds the generated shapes; it need not exist."""
    return cache_folder() / "shapes"


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
    if not target.is_dir():
        with writing(f"model '{model.label()}'"):
            if not target.is_dir():  # else another process has made it meanwhile
                _check_room(shape, model, models.shapes_gib())
                _generate(shape, model, target)
    try:
        models.check_files(target)
    except UserError as error:
        raise UserError(
            f"{error}; it is made anew once 'decodebench cache clear {target.name}' has removed it"
        ) from None
    with contextlib.suppress(OSError):
        os.utime(target)  # the last use, for `decodebench cache`
    return target


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


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Hold the folder of shapes, waiting for who holds it, and remove what killed writers left.
    Raises `UserError`, which begins with `what`, where there can be no such folder."""
    descriptor = None
    try:
        folder().mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder() / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if descriptor is None:  # else a file system without locks
            raise UserError(
                f"{what}: {folder()}: {error.strerror}; set XDG_CACHE_HOME to a folder that can be "
                "written to"
            ) from None
    try:
        for path in folder().glob(f".*{UNFINISHED}"):
            shutil.rmtree(path, ignore_errors=True)
        yield
    finally:
        os.close(descriptor)


def folder_bytes(directory: Path) -> int:
    """What the files in a folder take, without what its links lead to."""
    found = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in found)


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


def _check_room(shape: Shape, model: Model, cache_gib: int) -> None:
    need = shape.weight_bytes + ROOM_BYTES
    held = folder_bytes(folder())
    what = f"model '{model.label()}': its random weights need {need / GIB:.2f} GiB"
    if held + need > cache_gib * GIB:
        raise UserError(
            f"{what}, and {folder()} may take {cache_gib} GiB and holds {held / GIB:.2f}; "
            "'decodebench cache clear' makes room, 'limits: {cache_gib: N}' allows more"
        )
    free = shutil.disk_usage(folder()).free
    if need > free:
        raise UserError(f"{what}, and {folder()} is on a disk with {free / GIB:.2f} GiB left")


def _generate(shape: Shape, model: Model, target: Path) -> None:
    making = target.with_name(f".{target.name}{UNFINISHED}")
    try:
        making.mkdir()
        _write_texts(making, shape.config)
        with _progress(shape, model, target) as tell:
            digests = write_weights(making, shape.sizes, shape.depth, tell)
        sync_folder(making)
        rename_folder(making, target)
    except BaseException as error:
        shutil.rmtree(making, ignore_errors=True)
        if isinstance(error, OSError):  # a full disk does not say which file it would not take
            error.filename = str(target)
        raise
    known = FileDigests()
    for name, digest in digests.items():
        known.remember(target / name, digest)
    known.save()


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
    for name, text in contents.items():
        with (directory / name).open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def _progress(shape: Shape, model: Model, target: Path) -> Iterator[Any]:
    """What is told on stderr while a large one is written: one line, with the share that is done
    where somebody watches."""
    total = shape.weight_bytes
    line = f"shape {model.label()}: {total / GIB:.2f} GiB of random weights into {target}"
    watched = sys.stderr.isatty()
    if total < TOLD_FROM_BYTES:
        yield lambda done: None
        return
    if not watched:
        print(line, file=sys.stderr, flush=True)
        yield lambda done: None
        return
    shown = -1

    def tell(done: int) -> None:
        nonlocal shown
        if (percent := 100 * done // total) != shown:
            shown = percent
            print(f"\r{line} {percent}%", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        print(file=sys.stderr)
