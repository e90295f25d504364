"""The trained exit classifier: which folder a name means, and what it holds.

"Confident Adaptive Language Modeling" (CALM), section 3.5: one linear layer d -> 2, shared by all
layers, reads the hidden state after a layer and says whether its top token is the last layer's.

A folder has ``classifier.json`` (what it was trained on and how well it does) and
``classifier.safetensors``. It belongs to one checkpoint, by checksum; the wrong pair is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.bound_files import (
    CLASSIFIER,
    read_bound,
    replacing_tensors,
    write_bound,
)
from backends.checkpoints.exit_heads import check_layers
from harness.core.errors import UserError, nearest
from harness.core.files import check_plain, user_path

BUNDLED = models.DEMO / "early_exit" / "classifier"
FORMAT = 1
AUTO = "auto"
ABOUT, TENSORS = CLASSIFIER, "classifier.safetensors"
_WEIGHT, _BIAS = "weight", "bias"


@dataclass(frozen=True, slots=True)
class Classifier:
    """An opened classifier. Its tensors lie on the CPU."""

    path: Path
    weight: Any
    """float32 (2, width): rows "differs" and "agrees", for the state before the final norm."""
    bias: Any
    """float32 (2,)."""
    layers: tuple[int, ...]
    """After which layers it was trained: all but the last, unless others were asked for."""
    report: dict[str, Any]
    """What was measured on held-out rows, by which the best epoch was chosen."""

    def difference(self) -> tuple[Any, float]:
        """The vector w, float32 (width,), and the number b of the same answer from one product:
        the confidence softmax(weight @ h + bias)[1] is sigmoid(w @ h + b)."""
        return self.weight[1] - self.weight[0], float(self.bias[1] - self.bias[0])


def find_classifier(name: str, model_dir: Path) -> Path:
    """The folder that `name` means for a model: "auto" is the demo model's bundled one, any other
    name a path. Raises `UserError`."""
    if name == AUTO:
        if not models.is_demo(model_dir):
            raise UserError(
                "classifier: this model has no bundled one; train one with 'decodebench train "
                f"classifier --model {model_dir} --workload gsm8k "
                "--source hub --out DIR' and name DIR"
            )
        return BUNDLED
    path = user_path(name, "classifier")
    if path.is_dir():
        return path
    raise UserError(f"classifier: no folder '{name}'; {nearest(name, [AUTO])}")


def open_classifier(path: Path, model_dir: Path) -> Classifier:
    """Read a folder that `decodebench train classifier` wrote.

    Raises:
        UserError: when it is broken, was trained for another checkpoint than the one in
            `model_dir`, or is not of that model's width.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    where = path / ABOUT
    about = read_bound(where, model_dir, FORMAT, "width", "layers", "report")
    config, width, report = models.read_config(model_dir), about["width"], about["report"]
    if width != config.get("hidden_size"):
        raise UserError(f"{where}: width {width!r}; the model's is {config.get('hidden_size')}")
    if not isinstance(about["layers"], list) or not isinstance(report, dict):
        raise UserError(f"{where}: expected a list of layers and a report as an object")
    known = range(1, config.get("num_hidden_layers", 0))
    layers = check_layers(about["layers"], known, f"{where}: layers")
    try:
        check_plain(path / TENSORS)
        tensors = load_file(path / TENSORS)
        weight, bias = tensors[_WEIGHT], tensors[_BIAS]
        _check_tensors({_WEIGHT: (weight, [2, width]), _BIAS: (bias, [2])})
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"{path / TENSORS}: not readable: {models.one_line(error)}") from None
    return Classifier(path, weight, bias, layers, report)


def write_classifier(found: Classifier, checkpoint: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """Write the folder `found.path` so that `open_classifier` takes it for the model with this
    checksum, the report last: it makes the folder valid.

    Returns:
        The content of `classifier.json`, with what else is `told`. Raises `UserError` and
        `OSError` for a disk that takes no more.
    """
    from safetensors.torch import save_file

    with replacing_tensors(found.path / TENSORS) as temporary:
        save_file({_WEIGHT: found.weight, _BIAS: found.bias}, temporary)
    about = {"layers": list(found.layers), "width": found.weight.shape[1]}
    content = {**about, **told, "report": found.report}
    return write_bound(found.path / ABOUT, checkpoint, FORMAT, content)


def _check_tensors(expected: dict[str, tuple[Any, list[int]]]) -> None:
    import torch

    for name, (tensor, shape) in expected.items():
        if list(tensor.shape) != shape or tensor.dtype != torch.float32:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise ValueError(f"{name} is {kind} {list(tensor.shape)}, not float32 {shape}")
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} holds NaN or infinite values")
