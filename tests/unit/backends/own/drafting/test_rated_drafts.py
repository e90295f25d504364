"""Drafts that stand by rates, on random weights: everything runs, and the rates decide."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from backends import load_class, open_backend
from backends.checkpoints import models
from backends.vllm.drafting import drawn_head
from harness.core.errors import UserError
from harness.core.nouns import REPLAYED, Model, Request, Sampling
from results.traces.rated import drafts_of
from results.traces.rates import parse_rates
from tests.support.exits.replays import drive
from tests.support.small_shapes import small_shape

SIZES: dict[str, Any] = {"threads": 1, "max_num_seqs": 4, "max_model_len": 512}
TOKENS, DRAFTS = 61, 3
GIVEN = {"acceptance": [0.8, 0.6, 0.3]}


@pytest.fixture(scope="module")
def shape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        small = small_shape(tmp_path_factory.mktemp("target"), num_hidden_layers=8, head_dim=32)
        return models.resolve(small)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return [
        Request(f"gsm8k-{n}", tuple(range(5 + n, 30 + n)), TOKENS, Sampling(), (), ignore_eos=True)
        for n in range(6)
    ]


def expected(requests: list[Request], given: dict[str, Any]) -> dict[str, int]:
    """Counts as the rates say, by hand: an answer's first token is the prompt's."""
    rates, found = parse_rates(given, "x"), {"drafted": 0, "accepted": 0, "steps": 0}
    for request in requests:
        row = drafts_of(rates, rates.row_for(request.id, TOKENS, ignore_eos=True))
        position = 0
        while position < TOKENS - 1:
            made = row.chain(position, min(DRAFTS, TOKENS - 2 - position))[1]
            standing = row.standing(position, made)
            found["drafted"] += made
            found["accepted"] += standing
            found["steps"] += 1
            position += standing + 1
    return found


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("draft_model", GIVEN),
        ("eagle3", GIVEN),
        ("layerskip", GIVEN),
        ("prompt_lookup", {"acceptance": 0.7, "found": 0.5}),
        ("draft_model", {"acceptance": 0.0}),
        ("draft_model", {"acceptance": 1.0}),
    ],
)
@pytest.mark.parametrize("concurrency", [1, 4])
def test_the_work_is_what_the_rates_say(
    method: str, given: dict[str, Any], concurrency: int, shape: Path, requests: list[Request]
) -> None:
    options = {**SIZES, "method": method, "drafts": DRAFTS, "replay": given}
    backend = open_backend("speculative", shape, Model("demo", dtype="bfloat16"), options)
    assert (backend.info.provenance, backend.info.lossless) == (REPLAYED, False)
    found = {"drafted": 0, "accepted": 0, "steps": 0}
    tokens = 0
    for done in (done for poll in drive(backend, requests, concurrency) for done in poll):
        tokens += done.tokens
        for key in found:
            found[key] += int(done.counts.get(key, 0))
    backend.close()
    assert tokens == TOKENS * len(requests)
    assert found == expected(requests, given)


def test_both_engines_have_the_same_head(shape: Path) -> None:
    """A head of random weights lies in the cache, in vLLM's format, and reads states where
    published ones do."""
    from backends.checkpoints.draft_heads.files import EAGLE_LAYERS
    from backends.own.speculative import Speculative
    from backends.vllm.speculative import VllmSpeculative

    given = {"method": "eagle3", "drafts": DRAFTS, "replay": GIVEN}
    paths = set()
    for backend in (Speculative, VllmSpeculative):
        options = {name: option.default for name, option in backend.OPTIONS.items()} | given
        backend.check(shape, options)
        (config,) = (p for p in backend.files(shape, options) if p.name == "config.json")
        paths.add(config)
    (path,) = paths
    # vLLM takes three states where nothing tells
    assert models.read_config(path.parent)["num_aux_hidden_states"] == 3
    assert models.read_config(path.parent)[EAGLE_LAYERS] == [2, 4, 5]


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize(
    ("backend", "method"),
    [("speculative", "eagle3"), ("vllm-speculative", "eagle3"), ("vllm-speculative", "medusa")],
)
def test_a_damaged_head_is_told_before_anything_runs(
    backend: str, method: str, name: str, shape: Path
) -> None:
    found = load_class(backend)
    options = {key: option.default for key, option in found.OPTIONS.items()}
    options |= {"method": method, "drafts": DRAFTS, "replay": GIVEN}
    path = next(p for p in found.files(shape, options) if p.name == name)
    found.check(shape, options)
    os.truncate(path, 2 if name == "config.json" else 5_000)
    if name == "config.json":
        path.write_text("{}")
    with pytest.raises(
        UserError, match=f"'decodebench cache clear {method}-of-width-64-"
    ) as caught:
        found.check(shape, options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["eagle3", "medusa"])
def test_a_model_without_such_a_head_is_refused(method: str, tmp_path: Path) -> None:
    """Its configuration has no sizes that the engine reads."""
    (tmp_path / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"], "n_layer": 4}')
    options = {"method": method, "draft": "auto", "drafts": DRAFTS, "replay": GIVEN}
    options |= {"record": False}
    with pytest.raises(UserError, match=r"option 'method': .*GPT2LMHeadModel"):
        drawn_head(options, tmp_path)
