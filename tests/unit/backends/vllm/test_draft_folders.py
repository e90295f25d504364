"""What drafts for vLLM: which of its files count, what it is told for, and how much it drafts."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

import backends
from backends.checkpoints import models
from backends.checkpoints.shapes.folder import outline
from backends.vllm import sources
from backends.vllm.drafting import gpu_remarks
from backends.vllm.speculative import VllmSpeculative
from harness.core.errors import UserError, elsewhere
from harness.core.nouns import Model
from tests.support.small_shapes import small_shape

pytest.importorskip("vllm")

DEMO = Model("demo")
NAME = "vllm-speculative"
MAPPED = {"use_heterogeneous_vocab": True}


REGISTRY = "model_executor/models/registry.py"


def drafting(folder: Path, **changes: Any) -> Path:
    """A copy of the demo's draft model that says other things of itself; None: says nothing."""
    shutil.copytree(models.BUNDLED["demo-draft"], folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text()) | changes
    found = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(found))
    return folder


def refused(options: dict[str, Any]) -> str:
    """The line about them."""
    with pytest.raises(UserError) as caught:
        backends.warnings(NAME, DEMO, options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def files(options: dict[str, Any]) -> list[str]:
    """The names of those by whose checksums a trial is known."""
    whole = {name: option.default for name, option in VllmSpeculative.OPTIONS.items()} | options
    return [file.name for file in VllmSpeculative.files(models.BUNDLED["demo"], whole)]


def test_the_tokenizer_counts_where_tokens_are_mapped_by_it(tmp_path: Path) -> None:
    folder = drafting(tmp_path / "draft")
    (folder / "tokenizer_config.json").unlink(missing_ok=True)
    own = files({"draft": str(folder)})
    assert own == ["config.json", "model.safetensors"]
    assert files({"draft": str(folder), "speculative": MAPPED}) == [*own, "tokenizer.json"]
    (folder / "tokenizer_config.json").write_text("{}")
    more = ["tokenizer.json", "tokenizer_config.json"]
    assert files({"draft": str(folder), "speculative": MAPPED}) == own + more
    assert files({"draft": str(folder)}) == own
    assert backends.warnings(NAME, DEMO, {"draft": str(folder), "speculative": MAPPED}) == []


@pytest.mark.parametrize("method", ["ngram", "draft_model"])
def test_a_cpu_verifies_so_many_drafts_at_once(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    assert sources.number("v1/sample/rejection_sampler.py", "MAX_SPEC_LEN") == 128
    assert sources.number("v1/sample/rejection_sampler.py", "MAX_SPEC_LENGTH") is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    more = {"method": method, "drafts": 129}
    said = "'drafts': is 129; expected at most 128, the most that the installed vLLM verifies at"
    assert f"{said} once on a CPU" in refused(more)
    assert backends.warnings(NAME, DEMO, more | {"drafts": 128}) == []
    with elsewhere(True):
        assert backends.warnings(NAME, DEMO, more) == []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert backends.warnings(NAME, DEMO, more) == []


ON_V1: list[tuple[str, dict[str, Any]]] = [
    ("'replay'", {"replay": "demo"}),
    ("'method': suffix", {"method": "suffix"}),
    ("'method': medusa", {"method": "medusa"}),
    ("'method': mlp_speculator", {"method": "mlp_speculator"}),
    ("'speculative': use_heterogeneous_vocab", {"speculative": MAPPED}),
    (
        "'speculative': parallel_drafting",
        {"method": "eagle3", "speculative": {"parallel_drafting": True}},
    ),
]


@pytest.mark.parametrize(("by", "options"), ON_V1)
def test_a_gpu_too_where_vllm_takes_its_v1_runner(
    by: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert refused(options | {"drafts": 129}).endswith(
        f"most that the installed vLLM verifies at once on its V1 model runner ({by})"
    )
    asked = {name: option.default for name, option in VllmSpeculative.OPTIONS.items()} | options
    (said,) = gpu_remarks(asked)
    assert f"option {by}: runs on vLLM's " in said
    off = {"speculative": dict.fromkeys(asked["speculative"], False)}
    assert gpu_remarks(asked | {"replay": None, "method": "eagle3"} | off) == []


def test_a_head_that_vllm_registers_is_no_draft_model(tmp_path: Path) -> None:
    heads = sources.keys(REGISTRY, "_SPECULATIVE_DECODING_MODELS")
    assert heads >= {"PeagleLlamaForCausalLM", "PEagleDraftModel", "EagleDeepSeekMTPModel"}
    assert heads >= {"DFlashDraftModel", "DeepSeekMTPModel", "MedusaModel"}
    assert sources.keys(REGISTRY, "_SPECULATIVE_DECODING") == frozenset()
    for name in sorted(heads):
        folder = drafting(tmp_path / "draft", architectures=[name])
        said = refused({"draft": str(folder)})
        assert f"'draft': {folder}: is a head " in said
        assert ", not a model" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architectures": ["EagleDeepSeekMTPModel"]}, "of method eagle, not a model; say"),
        ({"architectures": ["DeepSeekMTPModel"]}, "(DeepSeekMTPModel), not a model"),
        ({"architectures": None, "model_type": "medusa"}, "of method medusa, not a model; say"),
        ({"architectures": None, "medusa_num_heads": 5}, "of method medusa, not a model; say"),
        ({"speculators_model_type": "peagle"}, "of method eagle3, not a model; say"),
    ],
)
def test_a_head_is_told_by_what_it_names(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder = drafting(tmp_path / "draft", **changes)
    assert f"'draft': {folder}: is a head {said}" in refused({"draft": str(folder)})


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"architectures": ["MLPSpeculatorPreTrainedModel"]}, "mlp_speculator"),
        ({"speculators_model_type": "eagle"}, "eagle"),
        ({"speculators_model_type": "dflash"}, "dflash"),
    ],
)
def test_no_method_is_hinted_at_that_does_not_load_the_head(
    changes: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    said = refused({"draft": str(drafting(tmp_path / "draft", **changes))})
    assert said.endswith(f"is a head of method {kind}, not a model")


@pytest.mark.parametrize("part", ["EAGLE-", "eagle3", "DFlash", "dspark"])
def test_a_draft_model_under_a_path_that_vllm_takes_for_a_heads(part: str) -> None:
    with tempfile.TemporaryDirectory() as kept:
        folder = drafting(Path(kept) / f"with-{part}" / "draft")
        said = refused({"draft": str(folder)})
        assert said.endswith(
            f"'draft': {folder}: vLLM takes a draft under a path with '{part.lower()}' for a head; "
            "move or copy it elsewhere"
        )
        copied = drafting(Path(kept) / "copied")
        assert backends.warnings(NAME, DEMO, {"draft": str(copied)}) == []


@pytest.mark.parametrize(
    ("cache", "draft", "taken"),
    [("EAGLE-lab", "draft", True), ("cache", "eagle3", True), ("cache", "draft", False)],
)
def test_a_draft_shape_that_would_lie_under_such_a_path(
    cache: str, draft: str, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
    model, named = small_shape(tmp_path / "small"), tmp_path / f"{draft}.json"
    shutil.copy(small_shape(tmp_path / "named").name, named)
    options = {"replay": "demo", "draft": str(named)}
    with outline(model) as folder:
        if not taken:
            backends.check_options(NAME, options, folder)
            return
        with pytest.raises(UserError, match="head; give the shape another name, or set XDG_CACHE"):
            backends.check_options(NAME, options, folder)
        with elsewhere(True):
            backends.check_options(NAME, options, folder)


def test_on_a_gpu_mapped_tokens_are_another_runners(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    options = {"speculative": MAPPED}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert backends.warnings(NAME, DEMO, options) == []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert backends.warnings(NAME, DEMO, {}) == []
    (said,) = backends.warnings(NAME, DEMO, options)
    assert said == (
        "backend 'vllm-speculative': option 'speculative': use_heterogeneous_vocab: runs on vLLM's "
        "V1 model runner, and 'vllm' on vLLM's defaults: a part of their ratio may come from that; "
        "'model_runner' among a trial's effective options says what ran"
    )


def test_mapped_tokens_are_drafted_greedily(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def asked(how: str) -> dict[str, Any]:
        return {"speculative": MAPPED | {"draft_sample_method": how}}

    assert refused(asked("probabilistic")).endswith(
        "'speculative': draft_sample_method: is probabilistic; expected greedy with "
        "use_heterogeneous_vocab"
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    other = {"speculative": {"draft_sample_method": "probabilistic"}}
    for options in (asked("greedy"), other):
        assert backends.warnings(NAME, DEMO, options) == []
