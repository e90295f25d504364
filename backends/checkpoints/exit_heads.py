"""Folders of trained exit heads: which one a name means, what it holds, and its two files.

A folder has ``heads.json`` (what it was trained on and how well it does) and ``heads.safetensors``.
It belongs to one checkpoint, by checksum; the wrong pair is refused. Older folders hold more
tensors (a probe at each layer, the trace of the model's own head), which nothing reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.bound_files import HEADS, read_bound, replacing_tensors, write_bound
from backends.engine.costs.cost_model import Trace
from harness.core.errors import UserError, nearest
from harness.core.files import check_plain, user_path

BUNDLED = models.DEMO / "heads"
FORMAT = 1
ABOUT, TENSORS = HEADS, "heads.safetensors"
KINDS = {"lightweight": "transform", "full": "head"}
"""Kinds of heads, and what a layer's tensor is called in each: T [width, width] before the model's
own head, or a head [vocabulary, width] in its place."""
AUTO, ORIGINAL = "auto", "original"
_ORDER = "token_order"
_CONFIDENCE, _AGREES, _START = "trace.confidence", "trace.agrees", "trace.start"


@dataclass(frozen=True, slots=True)
class HeadFolder:
    """An opened folder of exit heads."""

    path: Path
    layers: tuple[int, ...]
    tensors: dict[str, Any]

    def matrix(self, layer: int, final_head: Any) -> Any:
        """The (vocabulary, width) matrix of the exit after `layer`, in `final_head`'s dtype and
        on its device: its own, or the final head times the trained transform."""
        from backends.engine.model.heads import folded

        names = [_weight(layer, part) for part in KINDS.values()]
        return folded(final_head, next(self.tensors[x] for x in names if x in self.tensors))

    def shortlist(self, size: int) -> Any:
        """The (size,) ids of the tokens that were most frequent in training, ascending."""
        return self.tensors[_ORDER][:size].long().sort().values

    def trace(self) -> Trace:
        """What the heads say of held-out text."""
        return Trace(
            self.layers,
            self.tensors[_CONFIDENCE].float().numpy(),
            self.tensors[_AGREES].numpy(),
            self.tensors[_START].numpy(),
        )


def quarters(depth: int) -> tuple[int, ...]:
    """The exit layers of a model with `depth` layers where none are named: its quarters, as in
    AdaDecode's figure 3 (8, 16, 24 of 32); fewer in a model of less than four layers, none in one
    of a single layer."""
    return tuple(sorted({depth * quarter // 4 for quarter in (1, 2, 3)} - {0}))


def find_folder(name: str, model_dir: Path) -> Path | None:
    """The folder that `name` means for a model: "auto", a bundled name, a path; None for the
    model's original head. Raises `UserError`."""
    is_demo = models.is_demo(model_dir)
    known = sorted(path.name for path in BUNDLED.glob("*/") if path.is_dir()) if is_demo else []
    if name == ORIGINAL:
        return None
    if name == AUTO:
        if not is_demo:
            raise UserError(
                f"heads: this model has no bundled ones; train some with 'decodebench train heads "
                f"--model {model_dir} --workload gsm8k --source hub --out DIR' and name "
                f"DIR, or say {ORIGINAL}"
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

    where = path / ABOUT
    about = read_bound(where, model_dir, FORMAT, "layers", "width", "vocabulary")
    try:
        check_plain(path / TENSORS)
        tensors = load_file(path / TENSORS)
        folder = HeadFolder(path, tuple(about["layers"]), tensors)
        _check(folder, about["width"], about["vocabulary"])
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path / TENSORS}: not readable: {models.one_line(error)}") from None
    return folder


def write_folder(
    path: Path,
    checkpoint: str,
    kind: str,
    weights: Mapping[int, Any],
    token_order: Any,
    trace: Trace,
    told: Mapping[str, Any],
) -> dict[str, Any]:
    """Write a folder that `open_folder` takes, the report last: it makes the folder valid.

    Args:
        path: the folder.
        checkpoint: checksum of the model that the heads belong to.
        kind: of `KINDS`.
        weights: by ascending layer, the tensor of that kind, on the CPU.
        token_order: every token's id, the most frequent first.
        trace: what the heads say of held-out text.
        told: what else the report says.

    Returns:
        The report's content. Raises `UserError` and `OSError` for a disk that takes no more.
    """
    import torch
    from safetensors.torch import save_file

    tensors = {_weight(layer, KINDS[kind]): weights[layer] for layer in weights}
    tensors[_ORDER] = token_order.int()
    tensors[_CONFIDENCE] = torch.as_tensor(trace.confidence).half()
    tensors[_AGREES] = torch.as_tensor(trace.agrees).to(torch.uint8)
    tensors[_START] = torch.as_tensor(trace.starts).int()
    with replacing_tensors(path / TENSORS) as temporary:
        save_file(tensors, temporary)
    about = {
        "layers": list(weights),
        "kind": kind,
        "width": next(iter(weights.values())).shape[1],
        "vocabulary": len(token_order),
    }
    return write_bound(path / ABOUT, checkpoint, FORMAT, about | dict(told))


def check_layers(layers: Sequence[Any], available: Sequence[int], where: str) -> tuple[int, ...]:
    """`layers` as ascending exit layers. Raises `UserError` for none at all, and for one that is no
    whole number, occurs twice or is not `available`."""
    expected = f"expected some of {', '.join(map(str, available))}"
    if not layers:
        raise UserError(f"{where}: an empty list; {expected}")
    for layer in layers:
        if layer not in available or not isinstance(layer, int) or isinstance(layer, bool):
            raise UserError(f"{where}: no exit after layer {layer!r}; {expected}")
    if len(set(layers)) != len(layers):
        raise UserError(f"{where}: {list(layers)} names a layer twice")
    return tuple(sorted(layers))


def _weight(layer: int, part: str) -> str:
    return f"layer.{layer}.{part}"


def _check(folder: HeadFolder, width: int, vocabulary: int) -> None:
    """Raise `KeyError`, `TypeError` or `ValueError` for what no training writes."""
    layers, rows = folder.layers, {"lightweight": width, "full": vocabulary}
    shapes = {part: [rows[kind], width] for kind, part in KINDS.items()}
    if not layers or list(layers) != sorted({x for x in layers if type(x) is int and x > 0}):
        raise ValueError(f"layers {list(layers)} are not ascending numbers of layers")
    for layer in layers:
        found = [part for part in shapes if _weight(layer, part) in folder.tensors]
        if not found:
            raise KeyError(f"no weights for layer {layer}")
        for part in found:
            name = _weight(layer, part)
            if (size := list(folder.tensors[name].shape)) != shapes[part]:
                raise ValueError(f"{name} has shape {size}, not {shapes[part]}")
    for name, tensor in folder.tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} holds NaN or infinite values")
    if folder.tensors[_ORDER].sort().values.tolist() != list(range(vocabulary)):
        raise ValueError(f"{_ORDER} does not name each of {vocabulary} tokens once")
    folder.trace()
