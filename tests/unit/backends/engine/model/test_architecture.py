"""What config.json must say, in the spellings of transformers 4 and 5, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backends.engine.model.architecture import Architecture, EngineError, read_architecture

LLAMA3_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "vocab_size": 128256,
}
QWEN: dict[str, Any] = {
    **LLAMA,
    "architectures": ["Qwen2ForCausalLM"],
    "max_position_embeddings": 32768,
    "sliding_window": 4096,
    "use_sliding_window": False,
}


def read(folder: Path, base: dict[str, Any], **changes: Any) -> Architecture:
    config = {k: v for k, v in {**base, **changes}.items() if v != "absent"}
    (folder / "config.json").write_text(json.dumps(config))
    return read_architecture(folder)


def test_llama_3(tmp_path: Path) -> None:
    found = read(tmp_path, LLAMA)
    assert (found.family, found.layers, found.width, found.feed_forward) == (
        "llama",
        32,
        4096,
        14336,
    )
    assert (found.heads, found.kv_heads, found.head_dim) == (32, 8, 128)
    assert (found.query_size, found.kv_size) == (4096, 1024)
    assert (found.vocabulary, found.positions, found.epsilon) == (128256, 131072, 1e-5)
    assert (found.tied, found.qkv_bias, found.qk_norm) == (False, False, False)
    assert len(found.inverse_frequencies) == 64
    assert found.inverse_frequencies[0] == 1.0
    assert found.inverse_frequencies[-1] == pytest.approx(500000 ** (-126 / 128), rel=1e-6)


def test_what_a_configuration_may_leave_out(tmp_path: Path) -> None:
    absent = dict.fromkeys(("num_key_value_heads", "rope_theta", "hidden_act"), "absent")
    found = read(tmp_path, LLAMA, **absent, head_dim=None, rope_scaling=None)
    assert (found.kv_heads, found.head_dim) == (32, 128)
    assert found.inverse_frequencies[1] == pytest.approx(10000 ** (-2 / 128), rel=1e-6)


def test_families_differ_in_biases_and_norms(tmp_path: Path) -> None:
    qwen2 = read(tmp_path, QWEN, attention_bias=True)  # transformers ignores the key, too
    assert (qwen2.family, qwen2.qkv_bias, qwen2.qk_norm) == ("qwen2", True, False)
    qwen3 = read(tmp_path, QWEN, architectures=["Qwen3ForCausalLM"], hidden_size=1024)
    assert (qwen3.family, qwen3.qkv_bias, qwen3.qk_norm) == ("qwen3", False, True)
    assert qwen3.head_dim == 128
    mistral = read(tmp_path, LLAMA, architectures=["MistralForCausalLM"], sliding_window=None)
    assert (mistral.family, mistral.qkv_bias, mistral.qk_norm) == ("llama", False, False)


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_scaling": {"rope_type": "llama3", **LLAMA3_SCALING}},
        {"rope_scaling": {"type": "llama3", **LLAMA3_SCALING}},
        {
            "rope_theta": "absent",
            "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3_SCALING},
        },
        {
            "rope_scaling": {
                **LLAMA3_SCALING,
                "rope_type": "llama3",
                "original_max_position_embeddings": None,
            },
            "original_max_position_embeddings": 8192,
        },
    ],
)
def test_every_spelling_of_llama_3_scaling(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Wavelengths below 8192 / 4 are kept, above 8192 stretched by 8, blended between."""
    plain = read(tmp_path, LLAMA).inverse_frequencies
    scaled = read(tmp_path, LLAMA, **changes).inverse_frequencies
    ratios = [a / b for a, b in zip(plain, scaled, strict=True)]
    waves = [6.283185307 / frequency for frequency in plain]
    for wave, ratio in zip(waves, ratios, strict=True):
        if wave < 2048:
            assert ratio == 1
        elif wave > 8192:
            assert ratio == pytest.approx(8, rel=1e-6)
        else:
            blend = (8192 / wave - 1) / 3
            assert 1 / ratio == pytest.approx((1 - blend) / 8 + blend, rel=1e-5)
    assert {1.0, 8.0} < {round(ratio, 6) for ratio in ratios}


@pytest.mark.parametrize("name", ["type", "rope_type"])
def test_linear_scaling(tmp_path: Path, name: str) -> None:
    plain = read(tmp_path, LLAMA).inverse_frequencies
    scaled = read(tmp_path, LLAMA, rope_scaling={name: "linear", "factor": 2}).inverse_frequencies
    assert scaled == tuple(frequency / 2 for frequency in plain)


def test_a_window_no_shorter_than_the_context_is_none(tmp_path: Path) -> None:
    mistral = {"architectures": ["MistralForCausalLM"]}
    plain = read(tmp_path, LLAMA, **mistral, sliding_window=None)
    assert read(tmp_path, LLAMA, **mistral, sliding_window=131072) == plain
    assert read(tmp_path, QWEN, layer_types=["full_attention"] * 32) == read(tmp_path, QWEN)


REFUSED = [
    (
        LLAMA,
        {"architectures": ["MistralForCausalLM"]},
        "sliding_window: is 4096; expected full attention",
    ),
    (LLAMA, {"architectures": ["GPT2LMHeadModel"]}, "architectures: GPT2LMHeadModel is not supp"),
    (LLAMA, {"architectures": ["Qwen2MoeForCausalLM"]}, "expected one of LlamaForCausalLM, Mis"),
    (LLAMA, {"architectures": None}, "architectures: none named is not supported; expected one of"),
    (LLAMA, {"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "rope_type: is 'yarn'; expected"),
    (LLAMA, {"rope_parameters": {"rope_type": "dynamic"}}, "one of default, linear, llama3"),
    (LLAMA, {"rope_scaling": {"type": "linear"}}, "factor: missing; expected a positive number"),
    (LLAMA, {"rope_scaling": {"type": "linear", "factor": 0}}, "factor: is 0; expected a positive"),
    (LLAMA, {"rope_scaling": "linear"}, "rope_scaling: is 'linear'; expected one set of rotary"),
    (LLAMA, {"rope_parameters": {"full_attention": {}}}, "expected one set of rotary settings"),
    (LLAMA, {"rope_scaling": {"type": "llama3", "factor": 8}}, "low_freq_factor: missing"),
    (
        LLAMA,
        {"rope_scaling": {"type": "llama3", **LLAMA3_SCALING, "low_freq_factor": 4}},
        "low_freq_factor: is 4.0; expected less than high_freq_factor, 4.0",
    ),
    (LLAMA, {"rope_theta": -1}, "rope_theta: is -1; expected a positive number"),
    (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor: is 0.5; expected 1"),
    (LLAMA, {"hidden_act": "gelu"}, "hidden_act: is 'gelu'; expected silu"),
    (LLAMA, {"attention_bias": True}, "attention_bias: is True; expected false"),
    (LLAMA, {"mlp_bias": True}, "mlp_bias: is True; expected false"),
    (QWEN, {"architectures": ["Qwen3ForCausalLM"], "attention_bias": True}, "attention_bias"),
    (LLAMA, {"quantization_config": {"bits": 4}}, "quantised weights are not read"),
    (LLAMA, {"sliding_window": 4096}, "sliding_window: is 4096; expected full attention"),
    (QWEN, {"use_sliding_window": True}, "sliding_window: is 4096; expected full attention"),
    (QWEN, {"layer_types": ["full_attention", "sliding_attention"]}, "full_attention in every"),
    (LLAMA, {"hidden_size": "absent"}, "hidden_size: missing; expected a positive whole number"),
    (LLAMA, {"num_hidden_layers": 0}, "num_hidden_layers: is 0; expected a positive whole"),
    (LLAMA, {"vocab_size": True}, "vocab_size: is True; expected a positive whole number"),
    (LLAMA, {"rms_norm_eps": "1e-5"}, "rms_norm_eps: is '1e-5'; expected a positive number"),
    (LLAMA, {"num_key_value_heads": 5}, "num_key_value_heads: is 5; expected a divisor of the 32"),
    (LLAMA, {"head_dim": 65}, "head_dim: is 65; expected an even number"),
    (LLAMA, {"hidden_size": 4100}, "hidden_size: is 4100; expected a multiple of the 32 heads"),
]


@pytest.mark.parametrize(("base", "changes", "message"), REFUSED, ids=[m for _, _, m in REFUSED])
def test_what_is_not_computed_is_refused_in_one_line(
    tmp_path: Path, base: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineError) as caught:
        read(tmp_path, base, **changes)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "config.json"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "missing"), ("{", "not readable as JSON"), ("[]", "expected a JSON object, got list")],
)
def test_an_unreadable_file(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(EngineError, match=message):
        read_architecture(tmp_path)
