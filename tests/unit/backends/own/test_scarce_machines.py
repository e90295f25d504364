"""Which kernels and how many threads our own engine takes where a machine has few."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from backends import settings
from backends.checkpoints import models
from backends.kernels.cpu import native
from backends.own.backend import Loaded
from harness.core.errors import UserError
from harness.core.nouns import Model


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def loaded(**named: object) -> Loaded:
    options = settings("autoregressive", named)
    model = Model("demo", dtype="float32")
    return Loaded("autoregressive", models.BUNDLED["demo"], model, options)


@pytest.mark.parametrize(("asked", "taken"), [(None, 1), (2, 2)])
def test_a_quota_limits_the_threads(
    asked: int | None, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.own.backend.usable_cores", lambda: 1)
    loaded(threads=asked, kernels="torch")
    assert torch.get_num_threads() == taken


def test_without_a_compiler_torch_is_measured_only_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unavailable() -> None:
        raise native.NativeUnavailableError("no C++ compiler found")

    monkeypatch.setattr("backends.own.backend.device", lambda: "cpu")
    monkeypatch.setattr(native, "library", unavailable)
    told = "kernels: 'native' cannot be built here: no C.. compiler found; 'torch' needs"
    with pytest.raises(UserError, match=told):
        loaded()
    assert loaded(kernels="torch").kernels == "torch"
