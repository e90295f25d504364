"""How large each part of a model is, and the tensors that follow from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

TensorShape = tuple[str, tuple[int, ...]]
"""A tensor's name in a checkpoint, as Hugging Face names it, and its shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """The sizes of a Llama or one of its near relatives."""

    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dim: int
    """Need not be width / heads."""
    vocabulary: int
    tied: bool
    """Whether the final head is the embedding."""
    qkv_bias: bool = False
    qk_norm: bool = False

    @property
    def query_size(self) -> int:
        """Rows of the query projection."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Rows of the key projection, and of the value projection."""
        return self.kv_heads * self.head_dim


def tensor_shapes(sizes: Dimensions) -> Iterator[TensorShape]:
    """Every tensor of a checkpoint of these sizes, in the order of the layers."""
    yield "model.embed_tokens.weight", (sizes.vocabulary, sizes.width)
    for index in range(sizes.layers):
        for name, shape in _layer(sizes):
            yield f"model.layers.{index}.{name}", shape
    yield "model.norm.weight", (sizes.width,)
    if not sizes.tied:
        yield "lm_head.weight", (sizes.vocabulary, sizes.width)


def _layer(sizes: Dimensions) -> Iterator[TensorShape]:
    width, inner = sizes.width, sizes.feed_forward
    yield "input_layernorm.weight", (width,)
    for name, rows in (("q", sizes.query_size), ("k", sizes.kv_size), ("v", sizes.kv_size)):
        yield f"self_attn.{name}_proj.weight", (rows, width)
        if sizes.qkv_bias:
            yield f"self_attn.{name}_proj.bias", (rows,)
        if sizes.qk_norm and name != "v":
            yield f"self_attn.{name}_norm.weight", (sizes.head_dim,)
    yield "self_attn.o_proj.weight", (width, sizes.query_size)
    yield "post_attention_layernorm.weight", (width,)
    yield "mlp.gate_proj.weight", (inner, width)
    yield "mlp.up_proj.weight", (inner, width)
    yield "mlp.down_proj.weight", (width, inner)
