"""A tiny random Llama in Hugging Face format, written without a deep-learning library.

Eight layers of width 256, heads of 64, a vocabulary of 1,024: the demo model's shape, so that a
test of an engine needs neither the trained weights nor their size.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

EOS_ID = 1
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 0,
    "eos_token_id": EOS_ID,
    "dtype": "float32",
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 512,
    "max_position_embeddings": 1024,
    "num_attention_heads": 4,
    "num_hidden_layers": 8,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "vocab_size": 1024,
}


def write_tiny_llama(
    directory: Path, *, seed: int = 0, tokenizer: bool = True, layers: int = 8
) -> Path:
    """Fill `directory` with config.json, model.safetensors and a byte-level tokenizer.json."""
    from safetensors.numpy import save_file

    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}))
    rng = np.random.default_rng(seed)
    tensors = {
        name: np.ones(shape, np.float32)
        if len(shape) == 1
        else rng.normal(0.0, 0.08, shape).astype(np.float32)
        for name, shape in _shapes(layers).items()
    }
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    if tokenizer:
        _write_tokenizer(directory)
    return directory


def _shapes(layers: int) -> dict[str, tuple[int, ...]]:
    width, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    keys = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (CONFIG["vocab_size"], width),
        "model.norm.weight": (width,),
    }
    for layer in range(layers):
        parts: dict[str, tuple[int, ...]] = {
            "input_layernorm": (width,),
            "post_attention_layernorm": (width,),
            "self_attn.q_proj": (width, width),
            "self_attn.k_proj": (keys, width),
            "self_attn.v_proj": (keys, width),
            "self_attn.o_proj": (width, width),
            "mlp.gate_proj": (inner, width),
            "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner),
        }
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in parts.items()}
    return shapes


def _write_tokenizer(directory: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(["<s>", "</s>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
