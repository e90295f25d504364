"""A classifier's weights: from safetensors, under the names of transformers, DeeBERT and PABEE."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from backends.checkpoints import models
from backends.classifiers.config import PABEE_RAMP, named_ramps, read
from backends.classifiers.models.base import RampedClassifier
from backends.classifiers.models.bert import BertClassifier
from backends.classifiers.models.residual import ResidualClassifier
from backends.classifiers.models.shapes import EncoderShape
from harness.core.errors import UserError

Tensors = dict[str, Tensor]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_UNUSED = re.compile(r"bert\.embeddings\.position_ids|cls\..*|.*\.num_batches_tracked")


def load(model_dir: Path, dtype: str = "float32") -> RampedClassifier:
    """The network with its weights, on the CPU, for inference.

    Raises:
        UserError: for a configuration or weights that do not fit.
    """
    config, tensors = read(model_dir), _tensors(model_dir)
    if isinstance(config.shape, EncoderShape):
        ramps = named_ramps(tensors, config.depth)
        tensors = _deebert_names(tensors, config.shape, model_dir)
        with torch.device("meta"), _Undrawn():
            model: BertClassifier | ResidualClassifier = BertClassifier(config.shape, ramps)
    else:
        with torch.device("meta"), _Undrawn():
            model = ResidualClassifier(config.shape)
    _check(model.state_dict(), tensors, model_dir)
    tensors = {name: tensor.to(DTYPES[dtype]) for name, tensor in tensors.items()}
    model.load_state_dict(tensors, strict=False, assign=True)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.num_batches_tracked = None
    return model.eval().requires_grad_(False)


class _Undrawn(TorchFunctionMode):
    """Leaves out what fills new parameters: on the meta device that imports torch's compiler, which
    takes as long as torch itself."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if getattr(func, "__module__", "") == torch.nn.init.__name__:
            return None
        return func(*args, **(kwargs or {}))


def drop_outside(model: RampedClassifier, first: int, last: int) -> None:
    """Free the layers that are not among first + 1 to `last`."""
    layers = model.bert.encoder.layer if isinstance(model, BertClassifier) else None
    if isinstance(model, ResidualClassifier):
        layers = model.blocks
    assert layers is not None
    for place in range(len(layers)):
        if not first <= place < last:
            layers[place] = torch.nn.Identity()


def _tensors(model_dir: Path) -> Tensors:
    """All tensors of the folder that a classifier could use."""
    found: Tensors = {}
    for path in models.weight_paths(model_dir):
        try:
            read_in = load_file(path)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
        found |= {_today(name): tensor for name, tensor in read_in.items()}
    return {name: tensor for name, tensor in found.items() if not _UNUSED.fullmatch(name)}


def _today(name: str) -> str:
    """A parameter's name; the oldest checkpoints call those of norms gamma and beta."""
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)


def _deebert_names(tensors: Tensors, shape: EncoderShape, model_dir: Path) -> Tensors:
    """PABEE's classifiers, which share the model's pooler, as ramps and the final classifier;
    without the ramp behind the last layer, which nothing uses."""
    unused = f"bert.encoder.highway.{shape.layers - 1}."
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(unused)}
    pabee = {name: found for name in tensors if (found := PABEE_RAMP.fullmatch(name))}
    if not pabee:
        return tensors
    kept = {name: tensor for name, tensor in tensors.items() if name not in pabee}
    pooler = {k: kept.get(f"bert.pooler.dense.{k}") for k in ("weight", "bias")}
    if None in pooler.values():
        raise UserError(f"model folder {model_dir}: bert.pooler.dense is missing")
    for name, found in pabee.items():
        number, part = int(found[1]), found[2]
        if number == shape.layers - 1:
            kept[f"classifier.{part}"] = tensors[name]
        else:
            kept[f"bert.encoder.highway.{number}.classifier.{part}"] = tensors[name]
            kept[f"bert.encoder.highway.{number}.pooler.dense.{part}"] = pooler[part]  # type: ignore[assignment]
    return kept


def _check(expected: Tensors, found: Tensors, model_dir: Path) -> None:
    """Raise `UserError` for a tensor that is missing, too many or of another shape."""
    where = f"model folder {model_dir}"
    expected = {name: t for name, t in expected.items() if not _UNUSED.fullmatch(name)}
    for name, tensor in expected.items():
        if name not in found:
            raise UserError(f"{where}: {name} is missing")
        if found[name].shape != tensor.shape:
            raise UserError(
                f"{where}: {name}: is {tuple(found[name].shape)}; expected {tuple(tensor.shape)}"
            )
    if more := sorted(set(found) - set(expected)):
        raise UserError(f"{where}: {more[0]}: is no part of a classifier with ramps")
