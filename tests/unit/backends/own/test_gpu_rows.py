"""How many rows our engine's calls have on a GPU."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from backends import settings
from backends.checkpoints import models
from backends.own.backend import Loaded
from harness.core.nouns import Model

DEMO = models.BUNDLED["demo"]


def test_calls_on_a_gpu_have_a_row_for_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    stub = types.SimpleNamespace(CudaExecutor=lambda *_, **options: given.update(options))
    monkeypatch.setitem(sys.modules, "backends.engine.executors.cuda", stub)
    options = settings("autoregressive", {"kernels": "torch", "max_num_seqs": 20})
    loaded = Loaded("autoregressive", DEMO, Model("demo"), options)
    loaded.kernels = "triton"
    loaded.executor()
    assert (given["slots"], given["rows"]) == (20, 32)
