"""Models of random weights on our own engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import backends
from backends.checkpoints import models
from harness.core.errors import UserError
from harness.core.nouns import Load, Model, Request
from harness.measure.load_loop import run_load
from tests.support.small_shapes import small_shape


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def answers(model: Model, kernels: str) -> list[list[int]]:
    options = {"threads": 1, "max_num_seqs": 2, "max_model_len": 64, "kernels": kernels}
    opened = backends.open_backend("autoregressive", models.resolve(model), model, options)
    ids = [tuple(range(5 + i, 25 + i)) for i in range(2)]
    requests = [Request(f"r{i}", prompt, 12) for i, prompt in enumerate(ids)]
    found = run_load(opened, requests, Load("closed", concurrency=2))
    opened.close()
    assert {g.finished for g in found} == {"length"}, "nothing but the length ends an answer"
    return [g.token_ids for g in found]


def test_a_shape_answers_with_the_length_asked_for(tmp_path: Path) -> None:
    model = small_shape(tmp_path)
    told = answers(model, "torch")
    assert [len(ids) for ids in told] == [12, 12]
    assert len(set(told[0])) > 1
    assert answers(model, "torch") == told


@pytest.mark.parametrize("kernels", ["auto", "native"])
@pytest.mark.parametrize("name", ["autoregressive", "adadecode"])
def test_heads_that_the_kernels_cannot_take_are_refused_before_anything_is_loaded(
    name: str, kernels: str, tmp_path: Path
) -> None:
    model = small_shape(tmp_path, head_dim=20)
    options = {"kernels": kernels, "replay": "demo"}
    line = "head_dim 20: the native kernels need a multiple of 16"
    with pytest.raises(UserError, match=line) as caught:
        backends.warnings(name, model, options)
    assert "\n" not in str(caught.value)
    backends.warnings(name, model, {**options, "kernels": "torch"})


@pytest.mark.parametrize("replay", ["demo", {"exits": {0.5: 0.5}, "acceptance": 0.9}])
@pytest.mark.parametrize("name", ["adadecode", "own-early-exit"])
def test_one_layer_has_nothing_to_leave_at(name: str, replay: Any, tmp_path: Path) -> None:
    line = f"^backend '{name}': a model of 1 layer has no exit before its end$"
    with pytest.raises(UserError, match=line):
        backends.warnings(name, small_shape(tmp_path, num_hidden_layers=1), {"replay": replay})


@pytest.mark.parametrize(
    ("name", "options", "rates", "supposed"),
    [
        ("adadecode", {}, {}, True),
        ("adadecode", {}, {"acceptance": 1}, False),
        ("adadecode", {"verify": False}, {}, False),
        ("tetris", {"verify": True}, {}, True),
        ("tetris", {}, {}, False),
        ("own-early-exit", {}, {}, False),
    ],
)
def test_rates_that_leave_open_how_many_predictions_stand_are_told(
    name: str, options: dict[str, Any], rates: dict[str, Any], supposed: bool, tmp_path: Path
) -> None:
    """Where they are verified, so that it decides what is paid."""
    replay = {"exits": {0.5: 0.5}, **rates}
    found = backends.warnings(name, small_shape(tmp_path), {"replay": replay, **options})
    line = f"backend '{name}': option 'replay': the rates {{\"exits\":{{\"0.5\":0.5}}}} have no"
    assert [one.startswith(line) for one in found if "acceptance" in one] == [True] * supposed


@pytest.mark.parametrize(
    "changes", [{"hidden_act": "gelu"}, {"rope_scaling": {"rope_type": "yarn", "factor": 4}}]
)
def test_what_the_engine_does_not_compute_is_refused_as_bad_input(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    model = small_shape(tmp_path, **changes)
    with pytest.raises(UserError, match=r"config\.json: (hidden_act|rope_type): is ") as caught:
        backends.warnings("autoregressive", model, {})
    assert "failed" not in str(caught.value), "not as a mistake of the backend's own"


def test_a_trained_model_of_such_sizes_is_run_by_torch_all_the_same(tmp_path: Path) -> None:
    folder = models.resolve(small_shape(tmp_path, head_dim=20))
    assert backends.warnings("autoregressive", Model(str(folder)), {}) == []
