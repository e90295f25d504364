"""The sizes in a ``config.json``, and what follows from them in closed form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from backends.checkpoints.models import whole_number
from backends.engine.model.architecture import FAMILIES
from backends.engine.model.dimensions import Dimensions
from harness.core.errors import UserError, nearest

BF16_BYTES = 2
QWEN3_HEAD = 128
"""What transformers gives Qwen3 where its configuration names no size of a head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes(Dimensions):
    """How large each part of a model is, and what that comes to."""

    @property
    def parameters(self) -> int:
        """Numbers in the checkpoint; an embedding that is the head too counts once."""
        return self._read_per_token() + (0 if self.tied else self.vocabulary * self.width)

    @property
    def bytes_per_token(self) -> int:
        """Weights that decoding one token reads, in bf16: every layer, the last norm and the head.
        Of the embedding it looks up one row, which is not counted."""
        return BF16_BYTES * self._read_per_token()

    def pass_bytes(self, dtype: str) -> dict[str, int]:
        """`harness.core.nouns.Measured.pass_bytes` where numbers are kept in `dtype`."""
        each = 4 if dtype == "float32" else BF16_BYTES
        return {
            "layer": each * self._layer,
            "layers": self.layers,
            "head": each * self._head,
            "head_row": each * self.width,
            "kv": each * 2 * self.kv_size * self.layers,
        }

    def _read_per_token(self) -> int:
        return self.layers * self._layer + self._head

    @property
    def _layer(self) -> int:
        joined = self.query_size + 2 * self.kv_size
        return (
            self.width * (joined + self.query_size + 3 * self.feed_forward + 2)
            + joined * self.qkv_bias
            + 2 * self.head_dim * self.qk_norm
        )

    @property
    def _head(self) -> int:
        """With the norm before it."""
        return self.width + self.vocabulary * self.width


def read_sizes(config: Mapping[str, Any], where: str) -> Sizes:
    """The sizes in a configuration, with transformers' defaults for what it leaves out.

    Raises `UserError`, which begins with `where`, for a size that is missing or impossible and for
    a model whose random weights cannot be made here: another architecture, biases outside Qwen2's,
    quantised weights.
    """
    family = _family(config, where)
    for key in ("mlp_bias",) if family == "qwen2" else ("attention_bias", "mlp_bias"):
        if config.get(key):
            raise UserError(f"{where}: {key}: is true; random weights are made without")
    if config.get("quantization_config"):
        raise UserError(f"{where}: quantization_config: random weights are bfloat16; leave it out")

    size = partial(whole_number, config, where)
    width, heads = size("hidden_size"), size("num_attention_heads")
    kv_heads = size("num_key_value_heads", heads)
    if heads % kv_heads:
        raise UserError(
            f"{where}: num_key_value_heads: is {kv_heads}; expected a divisor of the {heads} heads"
        )
    if config.get("head_dim") is None and family != "qwen3" and width % heads:
        raise UserError(
            f"{where}: hidden_size: is {width}; expected a multiple of the {heads} heads, or a "
            "head_dim"
        )
    tied = config.get("tie_word_embeddings")
    if not isinstance(tied, bool | None):
        raise UserError(f"{where}: tie_word_embeddings: is {tied!r:.40}; expected true or false")
    return Sizes(
        layers=size("num_hidden_layers"),
        width=width,
        feed_forward=size("intermediate_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=size("head_dim", QWEN3_HEAD if family == "qwen3" else width // heads),
        vocabulary=size("vocab_size"),
        tied=bool(tied),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
    )


def _family(config: Mapping[str, Any], where: str) -> str:
    named = config.get("architectures")
    found = str(named[0]) if isinstance(named, list) and named else "none named"
    if found not in FAMILIES:
        raise UserError(
            f"{where}: architectures: no random weights are made for {found:.60}; "
            f"{nearest(found, FAMILIES)}"
        )
    return FAMILIES[found]
