"""What only the nodes of a cluster need to have is theirs to refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import backends
from backends.checkpoints import models
from harness.cli.asked import beforehand, memory
from harness.cli.cluster.node import NodeState, NodeWorker, code_key
from harness.cli.cluster.nodes import ClusterNode, check
from harness.cli.pins import Pins
from harness.core.errors import UserError, elsewhere
from harness.core.nouns import Load, Model, Trial, Workload
from harness.measure.machine import gpu, meters
from tests.unit.harness.cli.cluster.test_asked_cluster import asked_of
from tests.unit.harness.cli.cluster.test_nodes import workload
from workloads.sandbox.probe import SandboxSupport

DEMO = models.BUNDLED["demo"]


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu, "memory_total", list)
    monkeypatch.setattr(meters, "total_memory", lambda: 4 * 2**30)


@pytest.mark.parametrize(
    ("name", "options", "directory"),
    [
        ("autoregressive", {"kernels": "triton"}, DEMO),
        ("adadecode", {"head_dtype": "fp8"}, DEMO),
        ("tetris", {"kernels": "triton"}, None),
        ("vllm-speculative", {"method": "ngram_gpu"}, None),
        ("vllm-early-exit", {"engine": {"load_format": "dummy"}}, None),
    ],
)
def test_options_that_need_a_gpu_are_not_asked_of_a_machine_that_only_sends_trials(
    name: str, options: Mapping[str, Any], directory: Path | None
) -> None:
    with pytest.raises(UserError, match=r"GPU|CUDA|CPU|cpu"):
        backends.check_options(name, options, directory)
    with elsewhere(True):
        backends.check_options(name, options, directory)
    with pytest.raises(UserError, match=r"GPU|CUDA|CPU|cpu"), elsewhere(False):
        backends.check_options(name, options, directory)


def test_neither_is_memory_nor_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beforehand, "support", lambda: SandboxSupport(problem="no sandbox"))
    large, programs = (
        Model("llama-3.1-8b", shape=True),
        replace(trial_of(), workload=Workload("humaneval")),
    )
    with pytest.raises(UserError, match=r"and this machine has 4\.0 GiB of memory"):
        memory.refuse_too_large(large)
    with pytest.raises(UserError, match="no sandbox"):
        beforehand.refuse_unscorable([programs])
    with elsewhere(True):
        memory.refuse_too_large(large)
        beforehand.refuse_unscorable([programs])


def test_a_cluster_is_asked_for_what_this_machine_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [{"name": "autoregressive", "kernels": "triton"}]
    call = asked_of(tmp_path, monkeypatch, backends=asked, reference="autoregressive")
    assert [trial.options for trial in call["trials"]] == [{"kernels": "triton"}]


def trial_of(model: Model | None = None, **options: Any) -> Trial:
    model = model or Model("demo", checksum=models.checksum(DEMO), dtype="float32")
    load = Load("closed", concurrency=2)
    return Trial("autoregressive", options, model, workload(), load, 4, 4)


@pytest.mark.parametrize(
    ("trial", "said"),
    [
        (trial_of(kernels="triton"), "kernels: 'triton' needs a CUDA device"),
        (trial_of(Model("llama-3.1-8b", shape=True)), "this machine has 4.0 GiB of memory"),
    ],
)
def test_a_node_says_what_it_cannot_run_before_it_reads_models(
    trial: Trial, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "checksum", lambda directory: pytest.fail("read"))
    state = NodeWorker("here", None).describe([trial])
    assert said in (state.refused or "")
    with pytest.raises(UserError, match=r"^--executor ray: node here: ") as caught:
        check([ClusterNode("here", None, state)], [trial])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_node_of_other_code_is_said_to_be_that() -> None:
    trial = trial_of()
    state = NodeState({}, "m", {code_key(trial): "older"}, {}, "unknown option")
    with pytest.raises(UserError, match="has other code of backend 'autoregressive'"):
        check([ClusterNode("a", None, state)], [trial])
    well = replace(state, code={code_key(trial): Pins().of(trial)})
    with pytest.raises(UserError, match="node a: unknown option"):
        check([ClusterNode("a", None, well)], [trial])
