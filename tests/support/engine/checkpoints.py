"""Small random checkpoints of every kind that the engine reads, written by transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backends.engine.model.architecture import Architecture, read_architecture
from backends.engine.model.weights import Weights, load_weights

SMALL = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 131,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.15,
    "tie_word_embeddings": False,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"model": "Llama"},
    "llama-tied-wide-heads": {"model": "Llama", "tie_word_embeddings": True, "head_dim": 24},
    "llama-multi-query-odd": {
        "model": "Llama",
        "num_key_value_heads": 1,
        "head_dim": 10,
        "hidden_size": 52,
        "intermediate_size": 73,
        "vocab_size": 97,
    },
    "llama-all-heads": {"model": "Llama", "num_key_value_heads": 4, "num_hidden_layers": 1},
    "codellama": {
        "model": "Llama",
        "max_position_embeddings": 16384,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    },
    "llama3": {
        "model": "Llama",
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 500000.0, **LLAMA3},
    },
    "linear": {
        "model": "Llama",
        "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
    },
    "mistral": {"model": "Mistral", "sliding_window": None, "head_dim": 16},
    "qwen2": {"model": "Qwen2", "num_attention_heads": 6, "sliding_window": 64},
    "qwen3": {"model": "Qwen3", "head_dim": 32, "tie_word_embeddings": True},
}
WIDE_INSIDE = {"model": "Llama", "num_hidden_layers": 1, "intermediate_size": 14336}
"""A feed-forward block as wide as an 8B model's."""


def write_checkpoint(directory: Path, name: str, *, seed: int = 0, shards: str = "5GB") -> Any:
    """Write one of `SHAPES`, or `WIDE_INSIDE` ("wide"), in float32; return transformers' model.

    Gains and biases are drawn at random too: at their initial ones and zeros they could be left
    out unnoticed.
    """
    import transformers

    settings = {**SMALL, **(WIDE_INSIDE if name == "wide" else SHAPES[name])}
    kind = settings.pop("model")
    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(**settings)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for label, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.normal_(1.0 if "norm" in label else 0.0, 0.3)
    model.save_pretrained(directory, max_shard_size=shards)
    return model


def reference_logits(model: Any, ids: Tensor) -> Tensor:
    """transformers' logits of (time,) ids: float32 (time, vocabulary)."""
    with torch.no_grad():
        found: Tensor = model(ids[None]).logits[0].float()
    return found


def prompt(length: int, vocabulary: int, seed: int = 0) -> Tensor:
    """Random token ids, int64 (length,)."""
    return torch.randint(vocabulary, (length,), generator=torch.Generator().manual_seed(seed))


class CheckpointCase(NamedTuple):
    """A checkpoint, transformers' model of it, and a text with its float32 logits."""

    directory: Path
    model: Any
    architecture: Architecture
    ids: Tensor
    truth: Tensor

    @classmethod
    def write(cls, directory: Path, name: str, length: int, *, seed: int = 0) -> CheckpointCase:
        """Write a checkpoint and a random text of `length` tokens."""
        model = write_checkpoint(directory, name, seed=seed)
        architecture = read_architecture(directory)
        ids = prompt(length, architecture.vocabulary, seed=seed)
        return cls(directory, model, architecture, ids, reference_logits(model, ids))

    def weights(self, dtype: torch.dtype) -> Weights:
        """The checkpoint as the engine loads it."""
        return load_weights(self.directory, self.architecture, dtype)
