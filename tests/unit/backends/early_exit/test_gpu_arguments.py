"""What `vllm-early-exit` asks of vLLM on a GPU, by arguments alone: no GPU is needed."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from backends import settings
from backends.checkpoints import models
from backends.early_exit.options import ExitOptions
from harness.core.nouns import Model

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vllm is not installed"
)


def stub(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    """The module itself would load torch's compiler and vLLM for the platform that there is."""
    module = ModuleType(name)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize(
    ("options", "waits", "asked"),
    [
        ({"measure": "softmax"}, False, None),
        ({"measure": "never"}, None, None),
        ({"measure": "softmax", "engine": {"async_scheduling": True}}, True, True),
    ],
)
def test_on_a_gpu_steps_that_ask_are_not_overlapped_and_all_are_counted(
    options: dict[str, Any],
    waits: bool | None,
    asked: bool | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A graph of the whole model never calls it, so that its steps would not be seen."""
    plan = ExitOptions(models.resolve(Model("demo")), settings("vllm-early-exit", options))
    stub(monkeypatch, "vllm.platforms", current_platform=SimpleNamespace(is_cpu=lambda: False))
    stub(monkeypatch, "backends.early_exit.plugin.model", SETTINGS="exits")
    given = {"enforce_eager": False, **({} if asked is None else {"async_scheduling": asked})}
    found = plan.engine_arguments(given)
    assert found["compilation_config"]["cudagraph_mode"] == "PIECEWISE"
    assert {**given, **found}.get("async_scheduling") is waits
