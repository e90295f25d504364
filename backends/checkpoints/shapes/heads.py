"""Heads of random weights, for models whose decisions are replayed: a head's cost is its sizes',
whatever it was trained to say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.checkpoints.draft_heads.check import BUNDLED
from backends.checkpoints.draft_heads.files import (
    CONFIG,
    EAGLE3,
    MEDUSA,
    eagle_config,
    medusa_config,
)
from backends.checkpoints.draft_models import AUTO
from backends.checkpoints.draft_traces import read_after
from backends.checkpoints.shapes.making import damaged, folder, made, progress, write_texts
from backends.checkpoints.shapes.weights import SEED, Tensor, write_weights
from backends.engine.drafters.eagle.sizes import eagle_shapes
from backends.engine.model.architecture import Architecture, EngineError, read_architecture
from harness.core.errors import UserError
from harness.core.nouns import canonical_json
from results.traces.rates import TraceSource


@dataclass(frozen=True, slots=True)
class DrawnHead:
    """A head of random weights in vLLM's format, made or not."""

    kind: str
    """The method that it drafts by."""
    config: dict[str, Any]
    tensors: tuple[Tensor, ...]

    @property
    def folder(self) -> Path:
        """Where it is, or will be: among the shapes, so that `decodebench cache` shows it."""
        content = canonical_json([SEED, self.config])
        digest = hashlib.sha256(content.encode()).hexdigest()[:12]
        return folder() / f"{self.kind}-of-width-{self.config['hidden_size']}-{digest}"

    def check(self) -> None:
        """Raise `UserError` where what is in the cache is damaged."""
        if not self.folder.is_dir():
            return
        try:
            models.check_files(self.folder)
            whole = models.read_config(self.folder) == self.config
        except UserError as error:
            raise damaged(str(error), self.folder) from None
        if not whole:
            raise damaged(f"{self.folder / CONFIG}: is not as it was written", self.folder)

    def made(self, prefix: str) -> Path:
        """The folder, written now unless it is there. Raises `UserError`, which begins with
        `prefix`, for no room, and for a damaged one."""
        total = sum(tensor.bytes for tensor in self.tensors)

        def write(making: Path) -> dict[str, str]:
            write_texts(making, {CONFIG: json.dumps(self.config, indent=2)})
            with progress(f"a head of method {self.kind}", total, self.folder) as tell:
                return write_weights(making, self.tensors, tell)

        return made(self.folder, f"{prefix} 'draft'", total, write)


def replayed_head(
    prefix: str, options: Mapping[str, Any], model_dir: Path, trace: TraceSource | None
) -> DrawnHead | None:
    """The head of random weights that drafts in a replay of EAGLE-3 or Medusa which names none, for
    a model without a bundled one; None where a trained one drafts.

    Args:
        prefix: begins each error line.
        options: of the backend.
        model_dir: the model that it drafts for.
        trace: what is replayed, if anything is.

    Raises:
        UserError: for a model that has no such head, and a trace that does not fit it.
    """
    method = options["method"]
    trained = options["draft"] != AUTO or (method in BUNDLED and models.is_demo(model_dir))
    if trace is None or trained:
        return None
    if method == MEDUSA:
        return medusa_heads(prefix, model_dir, options["drafts"])
    target = _target(prefix, model_dir)
    layers = read_after(prefix, trace, target.layers)
    # vLLM reads there how many states are joined, and takes three where it finds nothing
    config = {**eagle_config(model_dir, layers), "num_aux_hidden_states": len(layers)}
    return DrawnHead(EAGLE3, config, _tensors(eagle_shapes(target, len(layers))))


def medusa_heads(prefix: str, model_dir: Path, drafts: int) -> DrawnHead:
    """Medusa heads of random weights, one for each draft. Each has a matrix to the vocabulary of
    its own, as the published ones (FasterDecoding/medusa-vicuna-7b-v1.3) and unlike those that are
    trained here, which share the model's. Raises `UserError`, which begins with `prefix`, for a
    model whose sizes are not known."""
    target = _target(prefix, model_dir)
    shapes = {
        f"blocks.{head}.layers.0.weight": (target.width, target.width) for head in range(drafts)
    } | {f"lm_heads.{head}.weight": (target.vocabulary, target.width) for head in range(drafts)}
    config = {**medusa_config(model_dir, drafts), "original_lm_head": False}
    return DrawnHead(MEDUSA, config, _tensors(shapes))


def _target(prefix: str, model_dir: Path) -> Architecture:
    try:
        return read_architecture(model_dir)
    except EngineError as error:
        raise UserError(f"{prefix} 'method': {error}") from None


def _tensors(shapes: Mapping[str, tuple[int, ...]]) -> tuple[Tensor, ...]:
    """Matrices that keep the variance of what they multiply, and norms of ones."""
    return tuple(Tensor(n, s, s[1] ** -0.5 if len(s) > 1 else None) for n, s in shapes.items())
