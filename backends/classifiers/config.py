"""What a classifier's checkpoint says it is, read without torch: ``config.json`` and the names of
tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.checkpoints import models, weight_files
from backends.classifiers.models.shapes import EncoderShape, ResidualShape
from harness.core.errors import UserError, nearest

BERT, RESIDUAL = "bert", "residual"
FAMILIES: dict[str, str] = {
    "BertForSequenceClassification": BERT,
    "BertForSequenceClassificationWithPabee": BERT,
    "DeeBertForSequenceClassification": BERT,
    "ResidualBranchClassifier": RESIDUAL,
}
"""Architectures, as ``config.json`` names them. The last is ours."""
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
MOST_CLASSES = 10_000
DEEBERT_RAMP = re.compile(r"bert\.encoder\.highway\.(\d+)\.")
PABEE_RAMP = re.compile(r"classifiers\.(\d+)\.(weight|bias)")
"""Tensors of ramps, and of PABEE's final classifier; layers are counted from 0."""


@dataclass(frozen=True, slots=True)
class ClassifierConfig:
    """What a checkpoint is, before its weights are read."""

    shape: EncoderShape | ResidualShape
    labels: tuple[str, ...]
    """By number."""

    @property
    def depth(self) -> int:
        """Layers."""
        shape = self.shape
        return shape.layers if isinstance(shape, EncoderShape) else len(shape.widths)


def read(model_dir: Path) -> ClassifierConfig:
    """Raises `UserError` for a configuration that is no classifier's, or that is not run here."""
    path, config = model_dir / "config.json", models.read_config(model_dir)
    named = models.architecture(model_dir)
    family = FAMILIES.get(str(named))
    if family is None:
        raise UserError(
            f"{path}: architectures: {named or '(none named)'} is no classifier with ramps; "
            f"{nearest(str(named), FAMILIES)}"
        )
    labels = _labels(config, path)
    if family == RESIDUAL:
        return ClassifierConfig(_residual(config, path, len(labels)), labels)
    return ClassifierConfig(_encoder(config, path, len(labels)), labels)


def ramps(model_dir: Path, config: ClassifierConfig) -> tuple[int, ...]:
    """Numbers of layers behind which the checkpoint has a ramp, ascending, each below `depth`.
    Reads the weights' headers only. Raises `UserError` for files that are none."""
    if not isinstance(config.shape, EncoderShape):
        return tuple(range(1, config.depth))
    paths = models.weight_paths(model_dir)
    names = (name for path in paths for name in weight_files.tensor_names(path))
    return named_ramps(names, config.depth)


def named_ramps(names: Iterable[str], depth: int) -> tuple[int, ...]:
    """As `ramps`, of the names of an encoder's tensors. What stands behind the last layer is no
    ramp: PABEE's final classifier, or DeeBERT's highway that nothing uses."""
    found = (DEEBERT_RAMP.match(name) or PABEE_RAMP.fullmatch(name) for name in names)
    numbers = {int(one[1]) + 1 for one in found if one}
    return tuple(sorted(number for number in numbers if number < depth))


def _encoder(config: dict[str, Any], path: Path, classes: int) -> EncoderShape:
    for key, plain in (("position_embedding_type", "absolute"), ("is_decoder", False)):
        if config.get(key, plain) != plain:
            raise UserError(f"{path}: {key}: is {config[key]!r:.40}; expected {plain!r}")
    activation = config.get("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        known = nearest(str(activation), ACTIVATIONS)
        raise UserError(f"{path}: hidden_act: is {activation!r:.40}; {known}")
    width, heads = (
        models.whole_number(config, path, "hidden_size", 768),
        models.whole_number(config, path, "num_attention_heads", 12),
    )
    if width % heads:
        raise UserError(
            f"{path}: hidden_size: is {width}; expected a multiple of the {heads} heads"
        )
    epsilon = config.get("layer_norm_eps", 1e-12)
    if not isinstance(epsilon, float | int) or not 0 < epsilon < 1:
        raise UserError(f"{path}: layer_norm_eps: is {epsilon!r:.40}; expected a small number")
    return EncoderShape(
        layers=models.whole_number(config, path, "num_hidden_layers", 12),
        width=width,
        heads=heads,
        feed_forward=models.whole_number(config, path, "intermediate_size", 3072),
        vocabulary=models.whole_number(config, path, "vocab_size", 30522),
        positions=models.whole_number(config, path, "max_position_embeddings", 512),
        types=models.whole_number(config, path, "type_vocab_size", 2),
        classes=classes,
        epsilon=float(epsilon),
        activation=activation,
    )


def _residual(config: dict[str, Any], path: Path, classes: int) -> ResidualShape:
    widths = config.get("widths")
    if (
        not isinstance(widths, list)
        or not widths
        or not all(type(w) is int and w > 0 for w in widths)
    ):
        raise UserError(f"{path}: widths: expected a list of positive whole numbers")
    return ResidualShape(
        widths=tuple(widths),
        side=models.whole_number(config, path, "image_size"),
        classes=classes,
        branch_width=models.whole_number(config, path, "branch_width"),
    )


def _labels(config: dict[str, Any], path: Path) -> tuple[str, ...]:
    names = config.get("id2label")
    if names is None:
        count = models.whole_number(config, path, "num_labels", 2)
        names = {str(number): f"LABEL_{number}" for number in range(min(count, MOST_CLASSES))}
    expected = {str(number) for number in range(len(names))} if isinstance(names, dict) else None
    if not expected or set(names) != expected or len(names) > MOST_CLASSES:
        raise UserError(f"{path}: id2label: expected a name for each number from 0 on")
    return tuple(str(names[str(number)]) for number in range(len(names)))
