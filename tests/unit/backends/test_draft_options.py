"""What the two speculative backends refuse before anything is loaded, each in one line."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import backends
from backends.checkpoints import models
from backends.checkpoints.draft_heads.check import BUNDLED
from backends.vllm import sources
from harness.core.errors import UserError
from harness.core.nouns import Model
from tests.support.small_shapes import small_shape

DEMO = Model("demo")
HAS_VLLM = importlib.util.find_spec("vllm") is not None
WITH_VLLM = pytest.mark.skipif(not HAS_VLLM, reason="vllm is not installed")


def refused(name: str, options: dict[str, Any], model: Model = DEMO) -> str:
    with pytest.raises(UserError) as caught:
        backends.warnings(name, model, options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "lookup"}, "did you mean 'prompt_lookup'?"),
        ({"drafts": 16}, "expected at most 15, got 16"),
        ({"drafts": 0}, "expected at least 1, got 0"),
        ({"drafts": "many"}, "expected int or auto, got 'many'"),
        ({"threshold": 1.5}, "expected at most 1"),
        ({"exit_layer": 2}, "'exit_layer': belongs to method layerskip, not draft_model"),
        ({"method": "layerskip", "draft": "demo"}, "'draft': belongs to method draft_model"),
        ({"method": "layerskip", "exit_layer": 8}, "is 8; expected 1 to 7"),
        ({"method": "prompt_lookup", "lookup_min": 5}, "is 5; expected at most lookup_max, 4"),
        ({"drafts": 9, "max_model_len": 10}, "is 9; expected at most 8 in a context of 10 tokens"),
        ({"draft": "demo-drafd"}, "'draft': model 'demo-drafd': no such folder"),
        (
            {"replay": "demo", "threshold": 0.5},
            "'threshold': is 0.5; expected 0.6, that of the trace",
        ),
        ({"skip": 0.3}, "'skip': belongs to method swift, not draft_model"),
        ({"method": "swift", "skip": 1.0}, "expected at most 0.95"),
        ({"method": "swift", "sublayers": "x"}, "'sublayers': belongs to method self_speculation"),
        ({"method": "layerskip", "threshold": 0.5}, "'threshold': belongs to method"),
        ({"method": "self_speculation", "sublayers": "autoo"}, "no folder 'autoo'; did you mean"),
        ({"draft": ""}, "'draft': is empty; expected a bundled name"),
        ({"window": 4}, "'window': belongs to method lookahead, not draft_model"),
        ({"method": "lookahead", "window": 0}, "expected at least 1, got 0"),
        ({"method": "lookahead", "ngram": 17}, "expected at most 16, got 17"),
        ({"method": "lookahead", "pool_prompt": 2}, "'pool_prompt'"),
        (
            {"method": "lookahead", "window": 60, "guesses": 5, "ngram": 5},
            "(window 60 + guesses 5) x (ngram 5 - 1) are 260 rows a pass; expected at most 256",
        ),
        (
            {"method": "lookahead", "max_model_len": 5},
            "window 3 + ngram 3 are more than a context of 5 tokens has",
        ),
        ({"method": "lookahead", "drafts": 3}, "is 3; expected at most ngram - 1, 2"),
        ({"method": "lookahead", "record": True, "replay": "demo"}, "has no meaning with 'replay'"),
        ({"method": "eagle"}, "did you mean 'eagle3'?"),
        ({"method": "eagle3", "exit_layer": 2}, "'exit_layer': belongs to method layerskip"),
        ({"method": "eagle3", "draft": "demo-draft"}, "LlamaForCausalLM is that of a whole model"),
        ({"method": "eagle3", "draft": "eagle4"}, "'draft': model 'eagle4': no such folder"),
        ({"method": "eagle3", "replay": "demo", "threshold": 0.1}, "is 0.1; expected 0.6, that of"),
    ],
)
def test_our_engine_refuses(
    options: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert said in refused("speculative", options)


@pytest.mark.parametrize("method", ["lookahead", "eagle3"])
def test_a_gpu_takes_every_method(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert backends.warnings("speculative", DEMO, {"method": method}) == []


@WITH_VLLM
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "ngrm"}, "did you mean 'ngram'?"),
        ({"method": "medusa"}, "medusa needs a trained head, and none is bundled for this model"),
        ({"method": "medusa", "draft": "demo-draft"}, "LlamaForCausalLM is that of a whole model"),
        ({"method": "ngram", "draft": "demo-draft"}, "ngram drafts from the text alone"),
        ({"method": "ngram", "lookup_min": 9}, "is 9; expected at most lookup_max, 4"),
        ({"lookup_max": 1}, "'lookup_max': belongs to method ngram, not draft_model"),
        (
            {"method": "eagle3", "lookup_min": 1},
            "'lookup_min': belongs to method ngram, not eagle3",
        ),
        ({"drafts": 127, "max_model_len": 128}, "at most 126 in a context of 128 tokens"),
        (
            {"speculative": {"num_speculative_tokens": 3}},
            "num_speculative_tokens: is the backend's",
        ),
        ({"speculative": {"synthetic_acceptance_length": 2}}, "answers would not be the model's"),
        (
            {"speculative": {"rejection_sample_method": "synthetic"}},
            "rejection_sample_method: synthetic: answers would not be the model's",
        ),
        (
            {"method": "ngram", "speculative": {"use_heterogeneous_vocab": True}},
            "'speculative': use_heterogeneous_vocab: belongs to method draft_model, not ngram",
        ),
        ({"speculative": {"max_model_len": 32}}, "max_model_len: beyond it drafts are zeros"),
        ({"speculative": {"prompt_lookup_maxx": 3}}, "vLLM has no argument 'prompt_lookup_maxx'"),
        ({"engine": {"speculative_config": {}}}, "speculative_config: the options 'method'"),
        ({"method": "eagle", "record": True}, "'record': no trace tells of the drafts of vLLM's"),
        (
            {"method": "eagle", "replay": "demo"},
            "expected draft_model or eagle3 or medusa or ngram or suffix",
        ),
        (
            {"method": "ngram", "replay": "demo", "lookup_min": 1},
            "'lookup_min': is 1; expected 2, that of the trace: another one would draft other",
        ),
        ({"replay": "demo", "record": True}, "'record' has no meaning with 'replay'"),
        ({"replay": "nowhere"}, "option 'replay': no trace 'nowhere'; give demo, a file of"),
        ({"replay": {"length": 9}}, "'replay'.acceptance: is missing: how often a draft stands"),
    ],
)
def test_vllm_is_not_even_asked(options: dict[str, Any], said: str) -> None:
    assert said in refused("vllm-speculative", options)


@WITH_VLLM
def test_what_this_machine_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "needs a GPU; ngram does the same" in refused(
        "vllm-speculative", {"method": "ngram_gpu"}
    )
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "arctic_inference" else found(name),
    )
    assert "arctic-inference==0.1.1" in refused("vllm-speculative", {"method": "suffix"})


@WITH_VLLM
def test_a_method_that_vllm_has_dropped_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own = sources.choices("config/speculative.py", "SpeculativeMethod")
    assert own >= {"draft_model", "ngram", "eagle", "eagle3", "medusa"}, "nested literals too"
    options = {"method": "mlp_speculator", "draft": "demo-draft"}
    monkeypatch.setattr(sources, "choices", lambda *_: own - {"mlp_speculator"})
    said = refused("vllm-speculative", options)
    assert "the installed vLLM has no method mlp_speculator; of those that can be asked" in said
    assert "draft_model, ngram" in said
    monkeypatch.setattr(sources, "choices", lambda *_: frozenset())
    assert "no method" not in refused("vllm-speculative", options), "it does not tell them"


@WITH_VLLM
def test_plain_vllm_names_the_backend_that_drafts() -> None:
    options = {"engine": {"speculative_config": {"method": "ngram"}}}
    assert "the backend 'vllm-speculative' decodes with drafts" in refused("vllm", options)


@pytest.mark.parametrize("name", ["speculative", pytest.param("vllm-speculative", marks=WITH_VLLM)])
def test_a_draft_model_with_other_tokens_and_one_of_another_kind(name: str, tmp_path: Path) -> None:
    source = models.BUNDLED["demo-draft"]
    other = tmp_path / "other"
    shutil.copytree(source, other)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = list(vocabulary)[300:302]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    said = refused(name, {"draft": str(other)})
    assert f"{other}: has another tokenizer (token " in said
    if name == "vllm-speculative":
        mapped = {"draft": str(other), "speculative": {"use_heterogeneous_vocab": True}}
        assert backends.warnings(name, DEMO, mapped) == []
    shutil.copy(source / "tokenizer.json", other)
    backends.warnings(name, DEMO, {"draft": str(other)})
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "vocab_size": 1400}))
    assert "vocab_size: is 1400; expected the model's 1280" in refused(name, {"draft": str(other)})
    (other / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 64}))
    assert "is meant for 64 positions; 'max_model_len: 64' or" in refused(
        name, {"draft": str(other)}
    )
    backends.warnings(name, DEMO, {"draft": str(other), "max_model_len": 64})
    if name == "speculative":
        (other / "config.json").write_text(json.dumps({**config, "architectures": ["GPT2"]}))
        assert "architecture GPT2 is not one it takes" in refused(name, {"draft": str(other)})


def head(folder: Path, **changes: Any) -> str:
    """A copy of the demo's head that says other things of itself."""
    shutil.copytree(BUNDLED["eagle3"], folder)
    (folder / "draft_head.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return str(folder)


PUBLISHED: dict[str, Any] = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "vocab_size": None,
}


@pytest.mark.parametrize("tokenizer", [True, False])
@pytest.mark.parametrize("name", ["speculative", pytest.param("vllm-speculative", marks=WITH_VLLM)])
def test_a_head_in_the_place_of_a_draft_model_is_told_for_what_it_is(
    name: str, tokenizer: bool, tmp_path: Path
) -> None:
    def said(folder: Path, **changes: Any) -> str:
        options = {"draft": head(folder, **changes)}
        if tokenizer:
            shutil.copy(models.BUNDLED["demo-draft"] / "tokenizer.json", folder)
        return refused(name, options).removeprefix(f"backend '{name}': option 'draft': {folder}: ")

    is_vllm = name == "vllm-speculative"
    own = "is a head of method eagle3, not a model; say 'method: eagle3'"
    assert said(tmp_path / "own") == own
    other = "is a head of method eagle, not a model"
    hint = "; say 'method: eagle'" if is_vllm else ""
    eagle = {"architectures": ["EagleLlamaForCausalLM"]}
    assert said(tmp_path / "other", **eagle) == other + hint
    plain = {"architectures": ["LlamaForCausalLM"]}
    assert said(tmp_path / "plain", **plain) == own
    published = said(tmp_path / "published", **PUBLISHED)
    assert published == own if is_vllm else published.startswith("is a head (eagle3) in the layout")


def test_a_published_head_is_vllms(tmp_path: Path) -> None:
    options = {"method": "eagle3", "draft": head(tmp_path / "head", **PUBLISHED)}
    assert refused("speculative", options).endswith(
        "is a head (eagle3) in the layout of the library speculators, which 'vllm-speculative' "
        "reads; the engine's own are those of `decodebench train eagle`"
    )
    if not HAS_VLLM:
        return
    assert backends.warnings("vllm-speculative", DEMO, options) == []
    options = {"method": "medusa", "draft": options["draft"]}
    assert "is a head of method eagle3, not medusa" in refused("vllm-speculative", options)


@pytest.mark.parametrize("name", ["speculative", pytest.param("vllm-speculative", marks=WITH_VLLM)])
def test_a_draft_model_without_a_tokenizer_is_named_with_its_option(
    name: str, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(models.BUNDLED["demo-draft"], bare)
    (bare / "tokenizer.json").unlink()
    said = refused(name, {"draft": str(bare)})
    assert said.endswith(f"option 'draft': model folder {bare}: tokenizer.json is missing")


@pytest.mark.parametrize("name", ["speculative", pytest.param("vllm-speculative", marks=WITH_VLLM)])
def test_random_weights_are_not_drafted_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    small = small_shape(tmp_path / "small")
    assert "drafts for random weights are never accepted" in refused(name, {}, small)
    if name == "vllm-speculative":
        mapped = {"replay": "demo", "speculative": {"use_heterogeneous_vocab": True}}
        said = refused(name, {**mapped, "draft": small.name})
        assert said.endswith("config.json: is a shape, which has the model's tokens")
    copy = tmp_path / "copy"
    shutil.copytree(models.BUNDLED["demo"], copy)
    assert "this model has no bundled draft model; name one" in refused(name, {}, Model(str(copy)))
