"""Engines whose model lies on several ranks, which are other processes: with stand-ins for both."""

from __future__ import annotations

import importlib.util
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
if importlib.util.find_spec("vllm") is None:
    pytest.skip("vllm is not installed", allow_module_level=True)

from backends import check_options
from backends.checkpoints import models
from backends.vllm import speculative
from backends.vllm.speculative import VllmSpeculative
from harness.core.errors import UserError
from harness.core.nouns import Model


class Ranks:
    """An engine of two: what it is told to call reaches them by pickle, and both answer."""

    def __init__(self, device: str, *workers: Any) -> None:
        self.vllm_config = SimpleNamespace(device_config=SimpleNamespace(device_type=device))
        self.workers = workers

    def collective_rpc(self, function: Any) -> list[Any]:
        return [pickle.loads(pickle.dumps(function))(worker) for worker in self.workers]


def opened(monkeypatch: pytest.MonkeyPatch, engine: Any, **options: Any) -> dict[str, Any]:
    """The options that take effect on this engine."""
    told: list[dict[str, Any]] = []
    for name, replaced in {
        "set_environment": lambda threads: None,
        "engine_arguments": lambda *_: {},
        "config": lambda *_: {},
        "load_engine": lambda *_: engine,
        "effective": lambda *_: {},
    }.items():
        monkeypatch.setattr(speculative, name, replaced)
    monkeypatch.setattr(models, "stop_ids", lambda _: [])
    monkeypatch.setattr(VllmSpeculative, "__init__", lambda self, _, found, ids: told.append(found))
    given = {name: option.default for name, option in VllmSpeculative.OPTIONS.items()} | options
    VllmSpeculative.open(Path("model"), Model("demo", dtype="float32"), given)
    return told[0]


def test_each_rank_tells_which_states_a_head_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = SimpleNamespace(_get_eagle3_aux_layers_from_config=lambda: (2, 5, 8))
    runner.vllm_config = SimpleNamespace(
        speculative_config=SimpleNamespace(draft_model_config=SimpleNamespace(hf_config=None))
    )
    engine = Ranks("cuda", *[SimpleNamespace(model_runner=runner)] * 2)
    assert opened(monkeypatch, engine, method="eagle3")["states_after"] == [2, 5, 8]


@pytest.mark.parametrize("name", ["tensor_parallel_size", "pipeline_parallel_size"])
def test_a_replay_wants_the_model_in_its_own_process(name: str) -> None:
    """What judges drafts by a trace cannot be sent to the ranks: found out after loading."""
    with pytest.raises(UserError) as caught:
        check_options("vllm-speculative", {"replay": "demo", "engine": {name: 2}})
    said = f"backend 'vllm-speculative': option 'replay': engine: {name}: 2: expected 1: a trace"
    assert str(caught.value).startswith(said)
    check_options("vllm-speculative", {"replay": "demo", "engine": {name: 1}})
    check_options("vllm-speculative", {"engine": {name: 2}})
