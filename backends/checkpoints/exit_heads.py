"""Folders of trained exit heads: which one a name means, and what it holds.

A folder has ``heads.json`` (what it was trained on and how well it does) and ``heads.safetensors``.
It belongs to one checkpoint, by checksum; the wrong pair is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.bound_files import read_bound
from backends.engine.costs.cost_model import Trace
from harness.core.errors import UserError, nearest
from harness.core.files import check_plain, user_path

BUNDLED = models.DEMO / "heads"
FORMAT = 1
AUTO, ORIGINAL = "auto", "original"


@dataclass(frozen=True, slots=True)
class HeadFolder:
    """An opened folder of exit heads."""

    path: Path
    layers: tuple[int, ...]
    tensors: dict[str, Any]

    def matrix(self, layer: int, final_head: Any) -> Any:
        """The (vocabulary, width) matrix of the exit behind `layer`, in `final_head`'s dtype and
        on its device: its own, or the final head times the trained transform."""
        from backends.engine.model.heads import folded

        whole = self.tensors.get(f"layer.{layer}.head")
        kept = self.tensors[f"layer.{layer}.transform"] if whole is None else whole
        return folded(final_head, kept)

    def shortlist(self, size: int) -> Any:
        """The (size,) ids of the tokens that were most frequent in training, ascending."""
        return self.tensors["token_order"][:size].long().sort().values

    def trace(self, *, original: bool = False) -> Trace:
        """The held-out calibration trace of the trained heads, or of the original one."""
        suffix = "_original" if original else ""
        return Trace(
            self.layers,
            self.tensors[f"trace.confidence{suffix}"].float().numpy(),
            self.tensors[f"trace.agrees{suffix}"].numpy(),
            self.tensors["trace.start"].numpy(),
        )


def find_folder(name: str, model_dir: Path) -> Path | None:
    """The folder that `name` means for a model: "auto", a bundled name, a path; None for the
    model's original head. Raises `UserError`."""
    is_demo = model_dir.resolve() == models.BUNDLED["demo"].resolve()
    known = sorted(path.name for path in BUNDLED.glob("*/") if path.is_dir()) if is_demo else []
    if name == ORIGINAL:
        return None
    if name == AUTO:
        if not is_demo:
            raise UserError(
                f"heads: this model has no bundled ones; train some with 'decodebench train heads "
                f"--model {model_dir} --workload gsm8k --out DIR' and name DIR, or say {ORIGINAL}"
            )
        return BUNDLED / "mixed"
    if name in known:
        return BUNDLED / name
    path = user_path(name, "heads")
    if path.is_dir():
        return path
    raise UserError(f"heads: no folder '{name}'; {nearest(name, [AUTO, ORIGINAL, *known])}")


def open_folder(path: Path, model_dir: Path) -> HeadFolder:
    """Read a folder of heads. Raises `UserError` when it is broken or was trained for another
    checkpoint than the one in `model_dir`."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    where = path / "heads.json"
    about = read_bound(where, model_dir, FORMAT, "layers", "width", "vocabulary")
    try:
        check_plain(path / "heads.safetensors")
        tensors = load_file(path / "heads.safetensors")
        folder = HeadFolder(path, tuple(about["layers"]), tensors)
        _check(folder, about["width"], about["vocabulary"])
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise UserError(
            f"{path / 'heads.safetensors'}: not readable: {models.one_line(error)}"
        ) from None
    return folder


def check_layers(layers: Sequence[Any], available: Sequence[int], where: str) -> tuple[int, ...]:
    """`layers` as ascending exit layers. Raises `UserError` for none at all, and for one that is no
    whole number, occurs twice or is not `available`."""
    expected = f"expected some of {', '.join(map(str, available))}"
    if not layers:
        raise UserError(f"{where}: an empty list; {expected}")
    for layer in layers:
        if layer not in available or not isinstance(layer, int) or isinstance(layer, bool):
            raise UserError(f"{where}: no exit behind layer {layer!r}; {expected}")
    if len(set(layers)) != len(layers):
        raise UserError(f"{where}: {list(layers)} names a layer twice")
    return tuple(sorted(layers))


def _check(folder: HeadFolder, width: int, vocabulary: int) -> None:
    """Raise `KeyError`, `TypeError` or `ValueError` for what no training writes."""
    layers, shapes = folder.layers, {"transform": [width, width], "head": [vocabulary, width]}
    if not layers or list(layers) != sorted({x for x in layers if type(x) is int and x > 0}):
        raise ValueError(f"layers {list(layers)} are not ascending numbers of layers")
    for layer in layers:
        found = [kind for kind in shapes if f"layer.{layer}.{kind}" in folder.tensors]
        if not found:
            raise KeyError(f"no weights for layer {layer}")
        for kind in found:
            if (size := list(folder.tensors[f"layer.{layer}.{kind}"].shape)) != shapes[kind]:
                raise ValueError(f"layer.{layer}.{kind} has shape {size}, not {shapes[kind]}")
    for name, tensor in folder.tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} holds NaN or infinite values")
    order = folder.tensors["token_order"]
    if order.sort().values.tolist() != list(range(vocabulary)):
        raise ValueError(f"token_order does not name each of {vocabulary} tokens once")
    folder.trace()
