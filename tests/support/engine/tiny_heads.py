"""A small random model with the demo's tokenizer, and heads trained on it in a moment."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from backends.checkpoints import models
from backends.training.exits import run as exit_run
from backends.training.heads import train as heads
from backends.training.small_models import checkpoint
from backends.training.small_models.llama import Llama, LlamaShape

TINY = {"layers": 4, "width": 32, "feed_forward": 48, "heads": 2, "kv_heads": 1, "head_dim": 16}
VOCABULARY = 1280
SMALL: dict[str, Any] = {"layers": "1,3", "rows": 8, "epochs": 6, "batch": 3, "rate": 3e-3}


def write_model(folder: Path) -> Path:
    """A random model in float32, loud enough to have opinions, with room for 512 positions."""
    torch.manual_seed(3)
    llama = Llama(LlamaShape(VOCABULARY, **TINY))
    with torch.no_grad():
        for parameter in llama.parameters():
            if parameter.dim() == 2:
                parameter.mul_(12)
    checkpoint.export(llama, models.BUNDLED["demo"], folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"torch_dtype": "float32", "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(load_all(folder / "model.safetensors"), folder / "model.safetensors")
    return folder


def load_all(path: Path) -> dict[str, Tensor]:
    return {name: tensor.float() for name, tensor in load_file(path).items()}


def train(model: Path, out: Path, **changes: Any) -> dict[str, Any]:
    names = changes.pop("workloads", ["gsm8k"])
    return heads.train_heads(str(model), names, out, **SMALL | changes)


class StandInKillError(Exception):
    """Stands for a kill: nothing in the project catches it."""


def killer(stage: str, done: int) -> Callable[[exit_run.StageProgress], None]:
    def die(progress: exit_run.StageProgress) -> None:
        if (progress.stage, progress.done) == (stage, done):
            raise StandInKillError

    return die


def greedy(model: Any, prompt: list[int], limit: int, stop: int) -> list[int]:
    """The prompt and transformers' own answer to it, token by token, without a cache."""
    ids = list(prompt)
    while len(ids) - len(prompt) < limit and (len(ids) == len(prompt) or ids[-1] != stop):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids
