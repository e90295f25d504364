"""The shapes that have a name, each as the ``config.json`` of its checkpoint.

0.1b, 0.5b and 1b are Llamas of our own: ever wider, with heads of 64, a vocabulary that grows with
them and the demo model's 4,096 positions; 1b is Llama-3.2-1B with 0.5b's vocabulary and
feed-forward layers of 7,168, so that it has 1.00e9 parameters. The others are as published on the
Hugging Face hub: meta-llama/Llama-3.2-1B and Llama-3.1-8B, Qwen/Qwen3-0.6B and Qwen3-8B,
codellama/CodeLlama-13b-hf and CodeLlama-34b-hf.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def _config(
    architecture: str,
    layers: int,
    width: int,
    feed_forward: int,
    heads: tuple[int, int, int],
    vocabulary: int,
    **more: Any,
) -> dict[str, Any]:
    """`heads`: query heads, key and value heads, and the size of each."""
    return {
        "architectures": [architecture],
        "model_type": architecture.removesuffix("ForCausalLM").lower(),
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": feed_forward,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": heads[2],
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        **more,
    }


def _llama(*sizes: Any, **more: Any) -> dict[str, Any]:
    return _config("LlamaForCausalLM", *sizes, mlp_bias=False, rms_norm_eps=1e-5, **more)


def _qwen3(*sizes: Any, **more: Any) -> dict[str, Any]:
    return _config(
        "Qwen3ForCausalLM",
        *sizes,
        rms_norm_eps=1e-6,
        rope_theta=1000000.0,
        rope_scaling=None,
        max_position_embeddings=40960,
        sliding_window=None,
        use_sliding_window=False,
        **more,
    )


def _scaled(factor: float) -> dict[str, Any]:
    """Llama 3's rotary positions, stretched from 8,192 to 131,072."""
    return {
        "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": factor,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "max_position_embeddings": 131072,
    }


_OWN = {
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
_CODE = {
    "rope_theta": 1000000.0,
    "max_position_embeddings": 16384,
    "tie_word_embeddings": False,
}
LADDER: Mapping[str, Mapping[str, Any]] = {
    "0.1b": _llama(12, 768, 2048, (12, 4, 64), 32000, **_OWN),
    "0.5b": _llama(24, 1024, 4864, (16, 8, 64), 64000, **_OWN),
    "1b": _llama(16, 2048, 7168, (32, 8, 64), 64000, **_OWN),
    "llama-3.2-1b": _llama(
        16, 2048, 8192, (32, 8, 64), 128256, tie_word_embeddings=True, **_scaled(32.0)
    ),
    "llama-3.1-8b": _llama(
        32, 4096, 14336, (32, 8, 128), 128256, tie_word_embeddings=False, **_scaled(8.0)
    ),
    "qwen3-0.6b": _qwen3(28, 1024, 3072, (16, 8, 128), 151936, tie_word_embeddings=True),
    "qwen3-8b": _qwen3(36, 4096, 12288, (32, 8, 128), 151936, tie_word_embeddings=False),
    "codellama-13b": _llama(40, 5120, 13824, (40, 40, 128), 32016, **_CODE),
    "codellama-34b": _llama(48, 8192, 22016, (64, 8, 128), 32000, **_CODE),
}
