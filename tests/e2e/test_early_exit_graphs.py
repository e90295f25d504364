"""Segments under CUDA graphs, as far as a machine without a GPU can tell (see the child)."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.child import CHILDREN, run_child
from tests.support.tiny_llama import write_tiny_llama

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]
CHILD = CHILDREN / "early_exit_graphs_child.py"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model"), tokenizer=False)


def child(model: Path, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run_child(CHILD, model, *options, OMP_NUM_THREADS="1"))
    return found


def test_segments_as_graphs_answer_as_eager_mode_does(model: Path) -> None:
    found = child(model)
    assert found["pieces"] == 8 + 3, "three segments of 8 layers in all, cut at each attention"
    assert len(found["steps"]) > 1, "graphs of several sizes"
    assert found["replayed"] > 10 * found["captured"] / len(found["steps"])
    assert found["moved"] == 0, "inputs that a graph would not have read"
    assert found["graphs"] == found["eager"]
    assert found["eager"]["schedule"] != found["eager"]["never"]


def test_whole_segments_as_graphs_do_so_too(model: Path) -> None:
    found = child(model, "--whole-segments")
    assert found["pieces"] == 3
    assert found["moved"] == 0
    assert found["graphs"] == found["eager"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_worker_takes_away_the_graph_of_the_whole_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm.compilation.cuda_graph import CUDAGraphWrapper
    from vllm.config import CUDAGraphMode
    from vllm.v1.worker.gpu_worker import Worker

    from backends.early_exit.plugin.segments import graphs_of
    from backends.early_exit.plugin.worker import WholeSegmentsWorker

    compilation = SimpleNamespace(cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE)
    config: Any = SimpleNamespace(compilation_config=compilation)
    monkeypatch.setattr(
        "vllm.compilation.cuda_graph.current_platform",
        SimpleNamespace(get_global_graph_pool=lambda: None),
    )
    segments: Any = [lambda: 1, lambda: 2]
    runs = graphs_of(segments, config)
    assert [(run.runtime_mode, run.unwrap()) for run in runs] == [
        (CUDAGraphMode.FULL, segment) for segment in segments
    ]
    compilation.cudagraph_mode = CUDAGraphMode.PIECEWISE
    assert graphs_of(segments, config) == segments

    def model() -> None: ...

    def loaded(self: Any, **_: Any) -> None:
        self.model_runner = SimpleNamespace(
            model=CUDAGraphWrapper(model, config, CUDAGraphMode.FULL)
        )

    monkeypatch.setattr(Worker, "load_model", loaded)
    worker: Any = object.__new__(WholeSegmentsWorker)
    worker.load_model()
    assert worker.model_runner.model is model


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_model_without_exits_is_one_graph_inside_what_counts_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`measure: never` had no graph at all in steps that only decode: the worker took vLLM's."""
    from torch import nn
    from vllm.config import CUDAGraphMode
    from vllm.model_executor.models.llama import LlamaForCausalLM

    from backends.early_exit.plugin.model import EarlyExitLlamaForCausalLM

    compilation = SimpleNamespace(cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE)
    monkeypatch.setattr(
        "vllm.compilation.cuda_graph.current_platform",
        SimpleNamespace(get_global_graph_pool=lambda: None),
    )

    def init(self: Any, **_: Any) -> None:
        nn.Module.__init__(self)
        self.model = nn.Module()
        self.model.layers = nn.ModuleList()

    monkeypatch.setattr(LlamaForCausalLM, "__init__", init)
    config = SimpleNamespace(compilation_config=compilation, additional_config={})
    causal: Any = EarlyExitLlamaForCausalLM(vllm_config=config)
    (graph,) = causal.whole
    assert (graph.runtime_mode, graph.unwrap()) == (CUDAGraphMode.FULL, causal.model)
    assert [name for name, _ in causal.named_children()] == ["model"]
    causal.whole = [lambda *_: "replayed"]
    assert causal.forward(None, None) == "replayed"
    compilation.cudagraph_mode = CUDAGraphMode.PIECEWISE
    causal = EarlyExitLlamaForCausalLM(vllm_config=config)
    assert causal.whole == [causal.model]


def test_without_fixed_places_graphs_read_what_is_not_there(model: Path) -> None:
    """The test above can fail: what a segment left is gone when the next one's graph reads it."""
    found = child(model, "--without-handover")
    assert found["graphs"]["schedule"] != found["eager"]["schedule"]
