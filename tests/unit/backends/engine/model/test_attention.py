"""Which operator computes attention on a GPU."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from backends.engine.model import attention


def test_no_plan_of_cudnn_is_built_for_the_length_of_a_prompt(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """PyTorch prefers cuDNN on Hopper; its plans cost every new length of a prompt 82 ms."""
    allowed = []
    cudnn: Any = torch.backends.cuda.cudnn_sdp_enabled
    fused = functional.scaled_dot_product_attention

    def noted(queries: Tensor, keys: Tensor, values: Tensor, **options: Any) -> Tensor:
        allowed.append((cudnn(), options["is_causal"]))
        return fused(queries, keys, values, **options)

    switch: Any = torch.backends.cuda.enable_cudnn_sdp
    request.addfinalizer(partial(switch, cudnn()))
    monkeypatch.setattr(attention, "_has_flash", lambda queries: True)
    monkeypatch.setattr(functional, "scaled_dot_product_attention", noted)
    queries, keys, values = torch.randn(3, 1, 4, 6, 16).unbind()
    whole = attention.attend(queries, keys[:, :2], values[:, :2])
    last = attention.attend(queries[:, :, -1:], keys[:, :2], values[:, :2])
    assert allowed == [(False, True), (False, False)]
    assert torch.allclose(whole[:, :, -1:], last, atol=1e-6)
    monkeypatch.undo()
    assert torch.allclose(whole, attention.attend(queries, keys[:, :2], values[:, :2]), atol=1e-6)
