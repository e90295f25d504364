"""Engines whose model lies on several ranks, which are other processes: with stand-ins for both."""

from __future__ import annotations

import importlib.util
import pickle
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
if importlib.util.find_spec("vllm") is None:
    pytest.skip("vllm is not installed", allow_module_level=True)

from backends import check_options
from backends.checkpoints import models
from backends.vllm import backend, speculative
from backends.vllm.backend import VllmBackend
from backends.vllm.sampling import REPAIRED, expand
from backends.vllm.speculative import VllmSpeculative
from harness.core.errors import UserError
from harness.core.nouns import Model


class Ranks:
    """An engine: what it is told to call reaches each rank, where it has several by pickle."""

    def __init__(self, device: str, *workers: Any) -> None:
        self.vllm_config = SimpleNamespace(device_config=SimpleNamespace(device_type=device))
        self.workers = workers

    def collective_rpc(self, function: Any) -> list[Any]:
        found = []
        for worker in self.workers:
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(sys.modules, "vllm.v1.sample", getattr(worker, "sample", None))
                if len(self.workers) > 1:
                    function = pickle.loads(pickle.dumps(function))
                found.append(function(worker))
        return found

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)


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


@pytest.mark.parametrize("wrong", [True, False])
def test_what_samples_is_repaired_where_it_samples(
    monkeypatch: pytest.MonkeyPatch, *, wrong: bool
) -> None:
    """In the parent of the ranks vLLM's function is the Triton one, which a CPU cannot call."""

    def thrown_away(x: Any, ends: Any, tokens: int) -> Any:
        return x.new_zeros(tokens)

    def of_triton(*_: Any) -> Any:
        raise TypeError("Cannot inspect kernel parameters for function")

    def sample(function: Any) -> ModuleType:
        found = ModuleType("vllm.v1.sample")
        found.__dict__["rejection_sampler"] = SimpleNamespace(expand_batch_to_tokens=function)
        return found

    function = thrown_away if wrong else right
    monkeypatch.setitem(sys.modules, "vllm.v1.sample", sample(of_triton))
    ranks = [SimpleNamespace(sample=sample(function)) for _ in range(2)]
    told = opened(monkeypatch, Ranks("cpu", *ranks), method="ngram")
    assert told.get("repaired") == (REPAIRED if wrong else None)
    for rank in ranks:
        now = rank.sample.rejection_sampler.expand_batch_to_tokens
        assert now is (expand if wrong else right)
    assert "repaired" not in opened(monkeypatch, Ranks("cuda", *ranks), method="ngram")


@pytest.mark.parametrize(("executor", "is_cpu"), [("mp", True), ("uni", True), ("uni", False)])
def test_each_rank_keeps_the_random_numbers_of_dropped_tokens(
    monkeypatch: pytest.MonkeyPatch, *, executor: str, is_cpu: bool
) -> None:
    """Else a sampled prompt that is read in several steps ends an engine of two ranks on a CPU.
    Only a model in this process can be timed from here."""
    monkeypatch.setattr(backend, "keep_generators", lambda runner: runner.done.append("kept"))
    monkeypatch.setattr(VllmBackend, "_watch", lambda _, worker: worker.model_runner.done.append(1))
    config = SimpleNamespace(
        get_vocab_size=lambda: 8,
        max_model_len=8,
        hf_text_config=SimpleNamespace(num_hidden_layers=2),
    )
    runners = [SimpleNamespace(done=[]) for _ in range(2 if executor == "mp" else 1)]
    engine = Ranks("cpu", *[SimpleNamespace(model_runner=runner) for runner in runners])
    engine.vllm_config.model_config = config
    engine.vllm_config.parallel_config = SimpleNamespace(distributed_executor_backend=executor)
    modules: dict[str, dict[str, Any]] = {
        "vllm": {"__version__": "0"},
        "vllm.inputs.engine": {"tokens_input": None},
        "vllm.platforms": {"current_platform": SimpleNamespace(is_cpu=lambda: is_cpu)},
        "vllm.sampling_params": {"SamplingParams": dict},
    }
    for name, attributes in modules.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**attributes))
    VllmBackend(engine, {}, [])
    done = ["kept", 1] if executor == "uni" else ["kept"]
    assert [runner.done for runner in runners] == [done if is_cpu else []] * len(runners)


def right(x: Any, ends: Any, tokens: int) -> Any:
    return expand(x, ends, tokens)
