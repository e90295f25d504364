"""The sizes of an EAGLE-3 head, by the names that vLLM has for its tensors."""

from __future__ import annotations

from dataclasses import replace

from backends.engine.model.architecture import Architecture

LAYER = "midlayer."
ATTENTION, FEED_FORWARD = LAYER + "self_attn.", LAYER + "mlp."


def eagle_shapes(architecture: Architecture, taps: int) -> dict[str, tuple[int, ...]]:
    """Every tensor of a head whose layer has the target's sizes.

    Args:
        architecture: the target's.
        taps: after how many of its layers states are read.
    """
    d, inner = architecture.width, architecture.feed_forward
    return {
        "fc.weight": (d, taps * d),
        LAYER + "hidden_norm.weight": (d,),
        LAYER + "input_layernorm.weight": (d,),
        ATTENTION + "q_proj.weight": (architecture.query_size, 2 * d),
        ATTENTION + "k_proj.weight": (architecture.kv_size, 2 * d),
        ATTENTION + "v_proj.weight": (architecture.kv_size, 2 * d),
        ATTENTION + "o_proj.weight": (d, architecture.query_size),
        LAYER + "post_attention_layernorm.weight": (d,),
        FEED_FORWARD + "gate_proj.weight": (inner, d),
        FEED_FORWARD + "up_proj.weight": (inner, d),
        FEED_FORWARD + "down_proj.weight": (d, inner),
        "norm.weight": (d,),
    }


def eagle_architecture(target: Architecture) -> Architecture:
    """The shape of the head's layer, by itself."""
    return replace(target, layers=1, family="llama", qkv_bias=False, qk_norm=False)
