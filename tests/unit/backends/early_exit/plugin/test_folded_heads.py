"""Trained heads on a loaded model: which are made when."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from backends.checkpoints import models
from backends.checkpoints.exit_heads import BUNDLED, HeadFolder, open_folder

DEMO = models.BUNDLED["demo"]
PLUGIN = "backends.early_exit.plugin"


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with projections that need no vLLM."""
    projection = ModuleType(f"{PLUGIN}.projection")
    vars(projection).update(Projection=lambda matrix: [matrix])
    monkeypatch.setitem(sys.modules, projection.__name__, projection)
    monkeypatch.delitem(sys.modules, f"{PLUGIN}.heads", raising=False)
    yield importlib.import_module(f"{PLUGIN}.heads")
    sys.modules.pop(f"{PLUGIN}.heads", None)


def test_a_head_is_made_once_and_those_of_another_folder_go(folded: Any) -> None:
    config = models.read_config(DEMO)
    opened: list[str] = []
    final = torch.randn(config["vocab_size"], config["hidden_size"])
    heads = folded.FoldedHeads()

    def made(name: str, *layers: int) -> dict[int, Any]:
        def read() -> HeadFolder:
            opened.append(name)
            return open_folder(BUNDLED / name, DEMO)

        return dict(heads.of(BUNDLED / name, layers, read, final))

    first = made("mixed", 2, 4)
    assert sorted(first) == [2, 4]
    for layers in ((2, 4), (4,)):
        again = made("mixed", *layers)
        assert all(again[layer] is first[layer] for layer in (2, 4))
    assert opened == ["mixed"]
    more = made("mixed", 3, 4)
    assert more[4] is first[4]
    assert (sorted(more), opened) == ([2, 3, 4], ["mixed", "mixed"])
    assert list(made("xsum", 2)) == [2], "the others' memory is free"
