"""`speculative` with a model that drafts for itself: plain decoding's text, and what it tells."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from backends import pins
from backends.checkpoints import models
from backends.own.drafting.sublayer_sets import ABOUT, BUNDLED
from harness.core.backend import Backend
from harness.core.errors import UserError
from harness.core.nouns import Load, Model, Sampling
from harness.measure.load_loop import run_load
from tests.support.exits.demo_answers import DEMO, answer, demo_requests, opened, plain_texts

NUCLEUS = Sampling(0.7, 0.9, 3)


def drafting(**options: Any) -> Backend:
    return opened("speculative", **options)


@pytest.mark.parametrize("sampling", [Sampling(), NUCLEUS], ids=["greedy", "nucleus"])
@pytest.mark.parametrize(
    "options",
    [
        {"method": "self_speculation"},
        {"method": "self_speculation", "drafts": 15, "threshold": 0.0},
        {"method": "swift"},
        {"method": "swift", "drafts": 6, "skip": 0.8, "threshold": 0.3},
    ],
    ids=str,
)
def test_the_text_is_plain_decodings(options: dict[str, Any], sampling: Sampling) -> None:
    requests = demo_requests(2, sampling)
    assert answer(drafting(**options), requests, 3) == plain_texts(2, sampling)


@pytest.mark.parametrize("method", ["self_speculation", "swift"])
def test_a_trial_is_the_same_whatever_came_before(method: str) -> None:
    requests = demo_requests(3)
    backend = drafting(method=method, drafts=4)
    found = []
    for _ in range(2):
        backend.reset()
        generations = run_load(backend, requests, Load("closed", concurrency=2))
        total: Counter[str] = Counter()
        for generation in generations:
            total.update({n: v for n, v in generation.telemetry.items() if "_us" not in n})
            assert generation.telemetry["draft_us"] > 0
        found.append((total, [g.token_ids for g in generations]))
    backend.close()
    assert found[0] == found[1]
    total = found[0][0]
    # 8 layers verify, and less than 8 draft each token
    assert 8 * total["steps"] < total["layers_run"]
    named = {name for name in total if name.startswith("skipped_")}
    assert bool(named) == bool(total["set_steps"]) == (method == "swift")
    assert sum(total[name] for name in named) in (0, 8 * len(requests)), "half of 16 sublayers"


def test_what_it_says_of_itself_and_what_pins_it() -> None:
    backend = drafting(method="self_speculation")
    about = json.loads((BUNDLED / ABOUT).read_text())
    for key in ("skipped_attention", "skipped_mlp"):
        assert backend.info.options[key] == about[key]
    assert backend.info.lossless
    backend.close()
    named = pins.files("speculative", Model("demo"), {"method": "self_speculation"})
    assert any(ABOUT in name for name in named)
    assert not pins.files("speculative", Model("demo"), {"method": "swift"})


def test_a_set_of_another_checkpoint_is_refused_before_loading(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(DEMO, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-4}))
    assert models.checksum(copy) != models.checksum(DEMO)
    options = {"method": "self_speculation", "sublayers": str(BUNDLED)}
    with pytest.raises(UserError, match="trained for another checkpoint"):
        opened("speculative", copy, **options)
    with pytest.raises(UserError, match="no bundled set; find one with"):
        opened("speculative", copy, method="self_speculation")
