"""The ladder's sizes: in closed form, as published, and as a generated checkpoint has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import catalogue, models
from backends.checkpoints.shapes.folder import read_shape
from backends.checkpoints.shapes.ladder import LADDER
from backends.checkpoints.shapes.sizes import read_sizes
from backends.checkpoints.shapes.weights import tensors
from backends.engine.model.architecture import read_architecture
from harness.core.errors import UserError
from harness.core.nouns import Model

PUBLISHED = {
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.1-8b": 8_030_261_248,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "codellama-13b": 13_016_028_160,
    "codellama-34b": 33_743_970_304,
}
"""Parameters, as the hub tells them of the safetensors files."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_shapes_have_as_many_parameters_as_the_published_models(name: str) -> None:
    assert read_shape(Model(name, shape=True)).sizes.parameters == PUBLISHED[name]


def test_our_own_shapes_are_as_large_as_their_names_say() -> None:
    found = {n: read_shape(Model(n, shape=True)).sizes.parameters / 1e9 for n in LADDER}
    assert found["0.1b"] == pytest.approx(0.1, rel=0.01)
    assert found["0.5b"] == pytest.approx(0.5, rel=0.01)
    assert found["1b"] == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("name", LADDER)
def test_the_closed_form_counts_the_tensors_that_are_written(name: str) -> None:
    shape = read_shape(Model(name, shape=True))
    found = {tensor.name: tensor.count for tensor in tensors(shape.sizes, shape.depth)}
    assert sum(found.values()) == shape.sizes.parameters
    looked_up = 0 if shape.sizes.tied else found["model.embed_tokens.weight"]
    assert 2 * (sum(found.values()) - looked_up) == shape.sizes.bytes_per_token


@pytest.mark.parametrize("name", LADDER)
def test_a_pass_reads_layers_and_head_and_a_cache(name: str) -> None:
    sizes = read_shape(Model(name, shape=True)).sizes
    read = sizes.pass_bytes("bfloat16")
    assert read["layers"] * read["layer"] + read["head"] == sizes.bytes_per_token
    assert read["head"] == read["head_row"] * (sizes.vocabulary + 1), "with the norm before it"
    assert read["kv"] == 2 * 2 * sizes.layers * sizes.kv_heads * sizes.head_dim
    assert sizes.pass_bytes("float32") == {
        key: value if key == "layers" else 2 * value for key, value in read.items()
    }


@pytest.mark.parametrize("name", LADDER)
def test_our_engine_reads_every_shape_of_the_ladder(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LADDER[name]))
    found, sizes = read_architecture(tmp_path), read_shape(Model(name, shape=True)).sizes
    for key in ("layers", "width", "feed_forward", "heads", "kv_heads", "head_dim", "vocabulary"):
        assert getattr(found, key) == getattr(sizes, key), key
    assert (found.tied, found.qk_norm) == (sizes.tied, sizes.qk_norm)


def test_bundled_models_and_shapes_are_listed_with_their_sizes() -> None:
    listed = {entry["name"]: entry for entry in catalogue.catalogue()}
    assert set(listed) == {*models.BUNDLED, *LADDER}
    assert (listed["demo"]["kind"], listed["demo"]["present"]) == ("bundled", True)
    assert listed["demo"]["parameters"] == 6_623_488
    assert listed["llama-3.1-8b"]["bytes_per_token"] == 2 * (8_030_261_248 - 128256 * 4096)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architectures: no random weights are made for"),
        ({"architectures": None}, "architectures: no random weights are made for none named"),
        ({"architectures": ["LlamaForCausalLn"]}, "did you mean 'LlamaForCausalLM'?"),
        ({"hidden_size": None}, "hidden_size: missing; expected a positive whole number"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: is 0; expected a positive"),
        ({"vocab_size": "x" * 99}, "vocab_size: is 'xxx"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings: is 'no'; expected true or false"),
        ({"num_key_value_heads": 5}, "num_key_value_heads: is 5; expected a divisor of the 12"),
        ({"head_dim": None, "hidden_size": 770}, "hidden_size: is 770; expected a multiple"),
        ({"attention_bias": True}, "attention_bias: is true; random weights are made without"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: random weights are bfloat16"),
    ],
)
def test_a_configuration_that_cannot_be_made_is_one_line(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        read_sizes({**LADDER["0.1b"], **changes}, "c.json")
    assert str(caught.value).startswith("c.json: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_configuration_leaves_out_has_the_default_of_transformers() -> None:
    bare = {k: v for k, v in LADDER["0.1b"].items() if k not in ("head_dim", "tie_word_embeddings")}
    sizes = read_sizes({**bare, "num_key_value_heads": None}, "c.json")
    assert (sizes.head_dim, sizes.kv_heads, sizes.tied) == (64, 12, False)
    qwen = read_sizes({**bare, "architectures": ["Qwen3ForCausalLM"]}, "c.json")
    assert (qwen.head_dim, qwen.qk_norm) == (128, True)
