"""`speculative` with the demo model's EAGLE-3 head: text, counts, and heads that it refuses."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import backends
from backends import pins
from backends.checkpoints import models
from backends.checkpoints.draft_heads.check import BUNDLED
from backends.checkpoints.draft_heads.files import ABOUT, CONFIG, TENSORS
from harness.core.errors import UserError
from harness.core.nouns import Load, Model, Sampling
from harness.measure.load_loop import run_load
from tests.support.exits.demo_answers import answer, demo_requests, opened, plain_texts, texts

HEAD = BUNDLED["eagle3"]
LAYERS = "eagle_aux_hidden_state_layer_ids"


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, 0.9, 3)], ids=["greedy", "nucleus"])
@pytest.mark.parametrize(
    "options",
    [{}, {"drafts": 3, "threshold": 0.0}, {"drafts": 15, "threshold": 0.3}],
    ids=["auto", "three", "many"],
)
def test_the_text_is_plain_decodings(options: dict[str, Any], sampling: Sampling) -> None:
    requests = demo_requests(2, sampling)
    backend = opened("speculative", method="eagle3", **options)
    assert backend.info.lossless
    for concurrency in (1, 3):
        assert texts(backend, requests, concurrency) == plain_texts(2, sampling)
    backend.close()


def test_torch_in_the_place_of_the_kernels_gives_its_own_text() -> None:
    requests = demo_requests(1, Sampling(0.7, 0.9, 3))[:2]
    expected = answer(opened("autoregressive", kernels="torch"), requests, 1)
    drafting = opened("speculative", method="eagle3", drafts=3, kernels="torch")
    assert answer(drafting, requests, 2) == expected


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, 0.9, 3)], ids=["greedy", "nucleus"])
def test_three_drafts_bring_what_the_model_card_says(sampling: Sampling) -> None:
    """3.30 tokens a verification of other rows, greedily; sampled tokens are harder to guess."""
    backend = opened("speculative", method="eagle3", drafts=3, threshold=0.0)
    total: Counter[str] = Counter()
    for found in run_load(backend, demo_requests(6, sampling), Load("closed", concurrency=4)):
        total.update(found.telemetry)
        assert found.telemetry["draft_us"] > 0
    backend.close()
    brought = total["step_tokens"] / total["steps"]
    assert abs(brought - 3.30) < (0.15 if sampling.temperature == 0 else 0.35)
    rates = [total[f"accepted_at_{i}"] / total[f"judged_at_{i}"] for i in (1, 2, 3)]
    assert min(rates) > 0.65
    assert total["accepted"] + total["steps"] >= total["step_tokens"]


def test_what_pins_it() -> None:
    named = pins.files("speculative", Model("demo"), {"method": "eagle3"})
    for file in (CONFIG, TENSORS, ABOUT):
        assert any(name.endswith(f"eagle3/{file}") or file in name for name in named)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({LAYERS: [2, 5, 9]}, f"{LAYERS}: 9: expected 0 to 8, the model's layers"),
        ({LAYERS: [2, 2, 8]}, f"{LAYERS}: is [2, 2, 8]; expected different layers"),
        ({LAYERS: None}, f"{LAYERS}: is None; expected different layers"),
        ({LAYERS: [2, 8]}, "tensor fc.weight has shape [256, 768], expected [256, 512]"),
        ({"hidden_size": 128}, "hidden_size: is 128; expected the model's 256"),
        ({"draft_vocab_size": 640}, "draft_vocab_size: is 640; expected 1280: the head's layer"),
        ({"num_key_value_heads": 4}, "num_key_value_heads: is 4; expected 2"),
        ({"norm_before_residual": True}, "norm_before_residual: is True; expected none"),
        ({"norm_before_fc": True}, "norm_before_fc: is True; expected none"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "eagle_config: is {'use_aux"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, "rope_scaling: is {'rope_type"),
        ({"architectures": ["MedusaModel"]}, "is a head of method medusa, not eagle3"),
    ],
    ids=str,
)
def test_a_head_that_does_not_fit_is_refused_before_loading(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(HEAD, tmp_path / "head")
    config = json.loads((folder / CONFIG).read_text()) | change
    (folder / CONFIG).write_text(json.dumps(config))
    assert said in refused(folder)


def test_another_targets_head_and_strange_tensors_are_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(HEAD, tmp_path / "head")
    tensors = load_file(folder / TENSORS)
    save_file({**tensors, "d2t": tensors["norm.weight"].clone()}, folder / TENSORS)
    assert "tensor d2t is unknown" in refused(folder)
    save_file(tensors, folder / TENSORS)
    about = json.loads((folder / ABOUT).read_text())
    (folder / ABOUT).write_text(json.dumps({**about, "checkpoint": "0" * 64}))
    assert str(folder) in refused(folder)
    (folder / ABOUT).unlink()
    backends.warnings("speculative", Model("demo"), {"method": "eagle3", "draft": str(folder)})
    with pytest.raises(UserError, match="eagle3 needs a trained head, and none is bundled"):
        backends.warnings("speculative", Model("demo-draft"), {"method": "eagle3"})
    assert models.is_demo(models.BUNDLED["demo"])


def refused(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        backends.warnings("speculative", Model("demo"), {"method": "eagle3", "draft": str(folder)})
    assert "\n" not in str(caught.value)
    return str(caught.value)
