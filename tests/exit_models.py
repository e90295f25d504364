"""Small random Llamas on which early exits differ: loud logits, gains and biases of all sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BASE: dict[str, Any] = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 101,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
MODELS: dict[str, dict[str, Any]] = {
    "grouped": {"num_hidden_layers": 8, "tie_word_embeddings": True},
    "biased": {
        "num_hidden_layers": 6,
        "tie_word_embeddings": False,
        "num_key_value_heads": 1,
        "attention_bias": True,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
}


def write_exit_model(directory: Path, name: str, *, dtype: str = "float32", seed: int = 0) -> Path:
    """Write one of `MODELS`. Later layers add less than earlier ones, as in trained models."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**{**BASE, **MODELS[name]})
    model = LlamaForCausalLM(config).eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for label, parameter in model.named_parameters():
            if parameter.dim() == 1:
                middle = 1.0 if "norm" in label else 0.0
                parameter.copy_(middle + 0.3 * torch.randn(parameter.shape, generator=draw))
                continue
            scale = 0.5 if "embed" in label or "lm_head" in label else 0.2
            if "o_proj" in label or "down_proj" in label:
                scale *= 0.5
            parameter.copy_(scale * torch.randn(parameter.shape, generator=draw))
    model.to(getattr(torch, dtype)).save_pretrained(directory)
    return directory
