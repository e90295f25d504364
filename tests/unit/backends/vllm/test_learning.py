"""Which of vLLM's methods draft from the answers of earlier requests is told to the harness."""

from __future__ import annotations

import importlib.util
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("torch")
if importlib.util.find_spec("vllm") is None:
    pytest.skip("vllm is not installed", allow_module_level=True)

from backends.vllm.speculative import VllmSpeculative
from harness.core.names import DRAFTS_FROM_ANSWERS, REJECTION_SAMPLING


@pytest.mark.parametrize(("method", "learns"), [("suffix", True), ("ngram", False)])
def test_drafts_from_answers_are_told(method: str, learns: bool) -> None:
    options: dict[str, Any] = {name: one.default for name, one in VllmSpeculative.OPTIONS.items()}
    engine = MagicMock()
    engine.vllm_config.parallel_config.world_size = 2
    capabilities = VllmSpeculative(engine, options | {"method": method}, ()).info.capabilities
    assert REJECTION_SAMPLING in capabilities
    assert (DRAFTS_FROM_ANSWERS in capabilities) == learns
