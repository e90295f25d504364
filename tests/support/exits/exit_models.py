"""Small random Llamas on which early exits differ: loud logits, gains and biases of all sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backends.checkpoints import models

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


def write_models(folder: Path) -> dict[str, Path]:
    """Every checkpoint, classifier and folder of heads that the plans use."""
    found = {"demo": models.BUNDLED["demo"]}
    for name in ("grouped", "biased"):
        found[name] = write_exit_model(folder / name, name)
        found[f"{name} heads"] = write_heads(folder / f"{name}-heads", found[name])
        found[f"{name} classifier"] = write_classifier(folder / f"{name}-classifier", found[name])
    return found


def write_heads(folder: Path, model: Path) -> Path:
    """Random exit heads: of two kinds, a transform of the final head and a head of its own."""
    import torch
    from safetensors.torch import save_file

    config = models.read_config(model)
    width, vocabulary = config["hidden_size"], config["vocab_size"]
    layers = list(range(1, config["num_hidden_layers"]))
    draw = torch.Generator().manual_seed(3)
    tensors = {
        "token_order": torch.arange(vocabulary, dtype=torch.int32),
        "trace.start": torch.tensor([0, 1], dtype=torch.int32),
        "trace.confidence": torch.zeros(1, len(layers), dtype=torch.float16),
        "trace.confidence_original": torch.zeros(1, len(layers), dtype=torch.float16),
        "trace.agrees": torch.zeros(1, len(layers), dtype=torch.uint8),
        "trace.agrees_original": torch.zeros(1, len(layers), dtype=torch.uint8),
    }
    for layer in layers:
        if layer % 2:
            noise = torch.randn(width, width, generator=draw) * 0.05
            tensors[f"layer.{layer}.transform"] = torch.eye(width) + noise
        else:
            tensors[f"layer.{layer}.head"] = torch.randn(vocabulary, width, generator=draw) * 0.5
    folder.mkdir(parents=True)
    save_file(tensors, folder / "heads.safetensors")
    about = {"format": 1, "checkpoint": models.checksum(model), "layers": layers}
    about |= {"width": width, "vocabulary": vocabulary}
    (folder / "heads.json").write_text(json.dumps(about))
    return folder


def write_classifier(folder: Path, model: Path) -> Path:
    """A random classifier that is sure of half the states."""
    import torch
    from safetensors.torch import save_file

    config = models.read_config(model)
    draw = torch.Generator().manual_seed(7)
    weight = torch.randn(2, config["hidden_size"], generator=draw) * 0.06
    folder.mkdir(parents=True)
    tensors = {"weight": weight, "bias": torch.tensor([0.1, -0.1])}
    save_file(tensors, folder / "classifier.safetensors")
    about = {"format": 1, "checkpoint": models.checksum(model), "width": config["hidden_size"]}
    about |= {"layers": list(range(1, config["num_hidden_layers"])), "recipe": {}, "report": {}}
    (folder / "classifier.json").write_text(json.dumps(about))
    return folder


def read_classifier(folder: Path) -> tuple[Any, Any]:
    """Weight and bias as they lie in the file."""
    from safetensors.torch import load_file

    tensors = load_file(folder / "classifier.safetensors")
    return tensors["weight"], tensors["bias"]
