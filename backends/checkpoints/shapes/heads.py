"""EAGLE-3 heads of random weights, for models whose decisions are replayed: a head's cost is its
sizes', whatever it was trained to say."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from backends.checkpoints.draft_heads.files import CONFIG, eagle_config
from backends.checkpoints.shapes.making import folder, made, progress, write_texts
from backends.checkpoints.shapes.weights import SEED, Tensor, write_weights
from backends.engine.drafters.eagle.sizes import eagle_shapes
from backends.engine.model.architecture import EngineError, read_architecture
from harness.core.errors import UserError
from harness.core.nouns import canonical_json


def drawn_head(prefix: str, model_dir: Path, layers: Sequence[int]) -> Path:
    """The folder of a head with the sizes of the model in `model_dir`, in vLLM's format, written
    now unless it is there; among the shapes, so that `decodebench cache` shows and clears it.

    Args:
        prefix: begins each error line.
        layers: after which of the model's layers the head reads states.

    Raises:
        UserError: for a model that the engine cannot compute, and for no room.
    """
    config = eagle_config(model_dir, layers)
    try:
        wanted = list(_tensors(model_dir, len(layers)))
    except EngineError as error:
        raise UserError(f"{prefix} 'draft': {error}") from None
    content = canonical_json([SEED, config])
    name = f"eagle3-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    target, total = folder() / name, sum(tensor.bytes for tensor in wanted)

    def write(making: Path) -> dict[str, str]:
        write_texts(making, {CONFIG: json.dumps(config, indent=2)})
        with progress("an EAGLE-3 head", total, target) as tell:
            return write_weights(making, wanted, tell)

    return made(target, f"{prefix} 'draft'", total, write)


def _tensors(model_dir: Path, taps: int) -> Iterator[Tensor]:
    """Matrices that keep the variance of what they multiply, and norms of ones."""
    for name, shape in eagle_shapes(read_architecture(model_dir), taps).items():
        yield Tensor(name, shape, shape[1] ** -0.5 if len(shape) > 1 else None)
