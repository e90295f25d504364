"""``decodebench train sentiment`` and ``train shapes``: the bundled classifiers, by one command."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from backends.checkpoints import models
from backends.checkpoints.bound_files import replacing_tensors
from backends.classifiers.models.bert import BertClassifier
from backends.classifiers.models.residual import ResidualClassifier
from backends.classifiers.weights import load
from backends.training.folders import check_out
from backends.training.labels.fit import Network, Told, fit
from backends.training.labels.recipe import RESIDUAL, SENTIMENT, SHAPES, LabelRecipe, encoder
from backends.training.labels.report import measured_on_test_rows
from backends.training.labels.tokenizers import write_pixels, write_words
from harness.core.files import only_writer, write_atomic
from workloads.labelled import LABELS, images

REPORT = "report.json"
BEGUN = "begun.json"
"""Stands there until the report does: what a killed training left is this command's too."""
SPREAD = 0.02
"""Deviation of the encoder's first weights, as transformers has it."""


def train(
    workload: str,
    out: Path,
    tell: Told,
    *,
    steps: int | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Train a classifier and write its checkpoint with `REPORT`, whose content is returned.

    Args:
        workload: sentiment or shapes.
        out: folder; what an earlier training has written there is replaced.
        tell: is given a line from time to time.
        steps: of the network; the recipe's by default.
        threads: of torch.
        seed: of rows and weights.

    Raises:
        UserError: for a folder that holds another checkpoint.
    """
    check_out(out, (REPORT, BEGUN))
    recipe = replace({"sentiment": SENTIMENT, "shapes": SHAPES}[workload], seed=seed)
    recipe = recipe if steps is None else replace(recipe, steps=steps)
    before = torch.get_num_threads()
    with only_writer(out, "training"):
        _write(out / BEGUN, {"recipe": asdict(recipe)})
        torch.set_num_threads(threads or before)
        torch.manual_seed(seed)
        started = time.monotonic()
        try:
            network, config = _sentiment(out) if workload == "sentiment" else _shapes(out)
            tokenizer = models.load_tokenizer(out)

            def encode(contents: Sequence[str]) -> list[list[int]]:
                found: list[list[int]] = tokenizer(list(contents))["input_ids"]
                return found

            fit(network, recipe, encode, tell)
            (out / REPORT).unlink(missing_ok=True)  # it is of other weights
            _export(network, config, out)
            report = _report(out, recipe, encode, time.monotonic() - started)
            (out / BEGUN).unlink()
        finally:
            torch.set_num_threads(before)
    return report


def _report(out: Path, recipe: LabelRecipe, encode: Any, seconds: float) -> dict[str, Any]:
    network = load(out)
    assert isinstance(network, BertClassifier | ResidualClassifier)
    found = measured_on_test_rows(network, recipe.workload, encode)
    report = {"recipe": asdict(recipe), "seconds": round(seconds), "test": found}
    _write(out / REPORT, report)
    return report


def _sentiment(out: Path) -> tuple[BertClassifier, dict[str, Any]]:
    longest = encoder(1).positions
    shape = encoder(write_words(out, longest))
    network = BertClassifier(shape, range(1, shape.layers))
    for name, parameter in network.named_parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=SPREAD)
        elif name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    return network, {
        "architectures": ["DeeBertForSequenceClassification"],
        "model_type": "bert",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.feed_forward,
        "hidden_act": shape.activation,
        "max_position_embeddings": shape.positions,
        "type_vocab_size": shape.types,
        "layer_norm_eps": shape.epsilon,
        "pad_token_id": 0,
    } | _named("sentiment")


def _shapes(out: Path) -> tuple[ResidualClassifier, dict[str, Any]]:
    write_pixels(out, images.SIDE**2)
    return ResidualClassifier(RESIDUAL), {
        "architectures": ["ResidualBranchClassifier"],
        "widths": list(RESIDUAL.widths),
        "image_size": RESIDUAL.side,
        "branch_width": RESIDUAL.branch_width,
        "vocab_size": 257,
    } | _named("shapes")


def _named(workload: str) -> dict[str, Any]:
    names = LABELS[workload]
    return {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
        "torch_dtype": "float32",
    }


def _export(network: Network, config: dict[str, Any], out: Path) -> None:
    _write(out / "config.json", config)
    weights = {
        name: tensor.detach().contiguous()
        for name, tensor in network.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    with replacing_tensors(out / "model.safetensors") as temporary:
        save_file(weights, temporary, metadata={"format": "pt"})


def _write(path: Path, content: dict[str, Any]) -> None:
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode())
