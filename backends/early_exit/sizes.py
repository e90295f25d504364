"""Sizes of a checkpoint as its configuration names them, also of one that vLLM alone computes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from backends.checkpoints import models


@dataclass(frozen=True, slots=True)
class NamedSizes:
    """What early exit asks of a model's shape."""

    layers: int
    positions: int
    """Tokens of the longest text that it was made for."""
    head_layers: float
    """What a product with the final head reads, in layers: weights of the head over a layer's."""


def named_sizes(directory: Path) -> NamedSizes:
    """Of the checkpoint in `directory`. Raises `UserError` for a size that is missing or none."""
    config = models.read_config(directory)

    size = partial(models.whole_number, config, directory / "config.json")
    width, heads = size("hidden_size"), size("num_attention_heads")
    head_dim = size("head_dim", width // heads)
    query, key_value = heads * head_dim, size("num_key_value_heads", heads) * head_dim
    layer = width * (2 * query + 2 * key_value + 3 * size("intermediate_size"))
    return NamedSizes(
        size("num_hidden_layers"),
        size("max_position_embeddings"),
        size("vocab_size") * width / layer,
    )
