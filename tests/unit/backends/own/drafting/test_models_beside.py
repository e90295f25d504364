"""What drafts for a model beside it, when the backend opens and ends."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from backends.engine.model.architecture import EngineError
from backends.own.drafting.methods import METHODS
from harness.core.errors import UserError
from tests.support.exits.demo_answers import opened


@pytest.mark.parametrize("method", ["draft_model", "eagle3"])
def test_a_model_that_drafts_is_closed_too(method: str) -> None:
    backend: Any = opened("speculative", method=method, drafts=3)
    [beside] = backend._beside
    backend.close()
    assert not hasattr(beside, "_model")


def test_what_the_engine_refuses_while_it_makes_a_drafter_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make(*_: object) -> Any:
        raise EngineError("kernels triton: not usable on cuda")

    monkeypatch.setitem(METHODS, "swift", dataclasses.replace(METHODS["swift"], make=make))
    with pytest.raises(UserError, match=r"^backend 'speculative': kernels triton: not usable"):
        opened("speculative", method="swift")
