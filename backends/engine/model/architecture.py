"""The shape of a checkpoint, read from its ``config.json``.

Llama's block and its near relatives: RMSNorm, rotary positions, full (grouped) attention, SwiGLU;
Qwen2 adds biases to the query, key and value projections, Qwen3 a norm to each query and key head.
What this engine does not compute exactly as the checkpoint means it is refused here, in one line.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.engine.model.dimensions import Dimensions

MISTRAL, MISTRAL_WINDOW = "MistralForCausalLM", 4096
"""What transformers takes for the window of a Mistral whose configuration names none."""
FAMILIES = {
    "LlamaForCausalLM": "llama",
    MISTRAL: "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""Which block an architecture of ``config.json`` is made of."""
SCALINGS = ("default", "linear", "llama3")
FULL = "full_attention"


class EngineError(ValueError):
    """Something that the engine was given cannot be used; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture(Dimensions):
    """The sizes of a model and what its layers are made of."""

    family: str
    """"llama" (Mistral with full attention too), "qwen2" or "qwen3"."""
    epsilon: float
    """Of every RMSNorm."""
    positions: int
    """The longest sequence that the checkpoint is meant for."""
    inverse_frequencies: tuple[float, ...]
    """Radians per position of each of the head_dim / 2 rotated pairs, scaling applied."""
    rope_factor: float = 1.0
    """What cosines and sines are multiplied by; 1 in every scaling that is known here."""


def read_architecture(directory: Path) -> Architecture:
    """Read a checkpoint's shape.

    Args:
        directory: a folder with a ``config.json`` as transformers 4 or 5 writes it.

    Raises:
        EngineError: for an unreadable file, a missing or impossible size, and for what the engine
            does not compute: another architecture or activation, sliding windows, quantised
            weights, biases outside Qwen2's, an unknown rotary scaling.
    """
    config = _Config(directory / "config.json")
    family = _family(config)
    _refuse_what_is_not_computed(config, family)
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", heads)
    # transformers gives Qwen3 heads of 128 unless its configuration says otherwise
    head_dim = config.size("head_dim", 128 if family == "qwen3" else width // heads)
    if config.get("head_dim") is None and width % heads:
        raise config.error("hidden_size", width, f"a multiple of the {heads} heads, or a head_dim")
    if heads % kv_heads:
        raise config.error("num_key_value_heads", kv_heads, f"a divisor of the {heads} heads")
    if head_dim % 2:
        raise config.error("head_dim", head_dim, "an even number")
    positions = config.size("max_position_embeddings")
    return Architecture(
        family=family,
        layers=config.size("num_hidden_layers"),
        width=width,
        feed_forward=config.size("intermediate_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=config.size("vocab_size"),
        epsilon=config.number("rms_norm_eps"),
        positions=positions,
        tied=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        inverse_frequencies=_inverse_frequencies(config, head_dim, positions),
    )


def check_full_attention(directory: Path) -> None:
    """Raise `EngineError` for quantised weights and for layers that do not see the whole text."""
    config = _Config(directory / "config.json")
    _refuse_quantised_and_windows(config, _family(config))


class _Config:
    """A configuration file whose complaints name the file and the key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise EngineError(f"{path}: missing") from None
        except (OSError, ValueError) as error:
            raise EngineError(f"{path}: not readable as JSON: {_first_line(error)}") from None
        if not isinstance(data, dict):
            raise EngineError(f"{path}: expected a JSON object, got {type(data).__name__}")
        self.data: dict[str, Any] = data

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or the default where it is absent or null."""
        value = self.data.get(key)
        return default if value is None else value

    def size(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(key, value, "a positive whole number")
        return value

    def number(self, key: str, table: dict[str, Any] | None = None) -> float:
        value = self.get(key) if table is None else table.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
            return float(value)
        raise self.error(key, value, "a positive number")

    def error(self, key: str, value: object, expected: str) -> EngineError:
        found = "missing" if value is None else f"is {value!r}"
        return EngineError(f"{self.path}: {key}: {found}; expected {expected}")


def _family(config: _Config) -> str:
    named = config.get("architectures")
    architecture = named[0] if isinstance(named, list) and named else None
    if architecture not in FAMILIES:
        raise EngineError(
            f"{config.path}: architectures: {architecture or 'none named'} is not supported; "
            f"expected one of {', '.join(FAMILIES)}"
        )
    return FAMILIES[str(architecture)]


def _refuse_what_is_not_computed(config: _Config, family: str) -> None:
    _refuse_quantised_and_windows(config, family)
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise config.error("hidden_act", activation, "silu")
    for key in ("mlp_bias",) if family == "qwen2" else ("attention_bias", "mlp_bias"):
        if config.get(key):
            raise config.error(key, config.get(key), "false")


def _refuse_quantised_and_windows(config: _Config, family: str) -> None:
    if config.get("quantization_config"):
        raise EngineError(f"{config.path}: quantization_config: quantised weights are not read")
    window, positions = config.get("sliding_window"), config.get("max_position_embeddings")
    if config.get("architectures") == [MISTRAL] and "sliding_window" not in config.data:
        window = MISTRAL_WINDOW
    # Qwen's configurations carry a window that only use_sliding_window puts to work
    used = not family.startswith("qwen") or config.get("use_sliding_window", False)
    if used and isinstance(window, int) and isinstance(positions, int) and window < positions:
        raise config.error("sliding_window", window, "full attention")
    kinds = config.get("layer_types", [])
    if not isinstance(kinds, list) or any(kind != FULL for kind in kinds):
        raise config.error("layer_types", kinds, f"{FULL} in every layer")


def _inverse_frequencies(config: _Config, head_dim: int, positions: int) -> tuple[float, ...]:
    """The rotary frequencies, in the float32 steps of transformers, so that both agree in bits."""
    import torch

    rope = _rope(config)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in SCALINGS:
        raise config.error("rope_type", kind, f"one of {', '.join(SCALINGS)}")
    if rope.get("partial_rotary_factor", 1) != 1:
        raise config.error("partial_rotary_factor", rope["partial_rotary_factor"], "1 (all of it)")
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / (config.number("rope_theta", rope) ** exponents)
    if kind == "linear":
        frequencies = frequencies / config.number("factor", rope)
    if kind == "llama3":
        rope.setdefault("original_max_position_embeddings", positions)
        frequencies = _llama3(config, rope, frequencies)
    return tuple(frequencies.tolist())


def _rope(config: _Config) -> dict[str, Any]:
    """The rotary settings: transformers 4 calls them rope_scaling and rope_theta, 5 puts both
    into rope_parameters."""
    outside = ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
    rope = {key: config.get(key) for key in outside if config.get(key) is not None}
    key = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    given = config.get(key, {})
    if not isinstance(given, dict) or any(isinstance(value, dict) for value in given.values()):
        raise config.error(key, given, "one set of rotary settings for all layers")
    merged = {"rope_theta": 10000.0, **rope, **{k: v for k, v in given.items() if v is not None}}
    original = rope.get("original_max_position_embeddings")
    return merged | ({} if original is None else {"original_max_position_embeddings": original})


def _llama3(config: _Config, rope: dict[str, Any], frequencies: Any) -> Any:
    """Llama 3.1's scaling: long wavelengths are stretched by the factor, short ones kept, those
    between blended (meta-llama/llama-models, `apply_scaling`)."""
    import torch

    factor, low, high, original = (
        config.number(key, rope)
        for key in (
            *("factor", "low_freq_factor", "high_freq_factor"),
            "original_max_position_embeddings",
        )
    )
    if low >= high:
        raise config.error("low_freq_factor", low, f"less than high_freq_factor, {high}")
    wavelengths = 2 * math.pi / frequencies
    blend = (original / wavelengths - low) / (high - low)
    between = (1 - blend) * frequencies / factor + blend * frequencies
    stretched = torch.where(wavelengths > original / low, frequencies / factor, frequencies)
    middle = (wavelengths >= original / high) & (wavelengths <= original / low)
    return torch.where(middle, between, stretched)


def _first_line(error: object) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
