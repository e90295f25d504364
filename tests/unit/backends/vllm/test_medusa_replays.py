"""Medusa's drafts, replayed by heads of random weights as large as published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import backends
from backends.checkpoints import models
from backends.checkpoints.draft_heads.files import medusa_config, write_files
from backends.checkpoints.shapes.folder import outline
from backends.vllm.drafting import drawn_head
from backends.vllm.speculative import VllmSpeculative
from harness.core.errors import UserError, elsewhere
from harness.core.nouns import Model
from tests.support.small_shapes import small_shape

pytest.importorskip("vllm")

NAME = "vllm-speculative"
RATED: dict[str, Any] = {"method": "medusa", "drafts": 2, "replay": {"acceptance": [0.8, 0.5]}}
WIDTH, VOCABULARY = 64, 1536


@pytest.fixture
def shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return models.resolve(small_shape(tmp_path / "small", num_hidden_layers=1, head_dim=32))


def whole(**changes: Any) -> dict[str, Any]:
    """All options of a replay by rates."""
    defaults = {name: option.default for name, option in VllmSpeculative.OPTIONS.items()}
    return {**defaults, **RATED, **changes}


def test_each_draft_has_a_head_with_a_matrix_to_the_vocabulary_of_its_own(shape: Path) -> None:
    """As published checkpoints have; one with fewer layers than EAGLE-3 reads will do."""
    from safetensors.torch import load_file

    assert backends.warnings_on(shape, NAME, Model("small", shape=True), RATED) == []
    config, weights = VllmSpeculative.files(shape, whole())
    assert weights.parent.name.startswith(f"medusa-of-width-{WIDTH}-")
    told = models.read_config(config.parent)
    assert (told["architectures"], told["model_type"]) == (["MedusaModel"], "medusa")
    assert (told["medusa_num_heads"], told["original_lm_head"]) == (2, False)
    found = {name: tuple(tensor.shape) for name, tensor in load_file(weights).items()}
    assert found == {
        "blocks.0.layers.0.weight": (WIDTH, WIDTH),
        "blocks.1.layers.0.weight": (WIDTH, WIDTH),
        "lm_heads.0.weight": (VOCABULARY, WIDTH),
        "lm_heads.1.weight": (VOCABULARY, WIDTH),
    }
    more = VllmSpeculative.files(shape, whole(drafts=3))[0].parent
    assert models.read_config(more)["medusa_num_heads"] == 3


def test_trained_heads_draft_where_they_are_named(shape: Path, tmp_path: Path) -> None:
    (tmp_path / "heads").mkdir()
    write_files(tmp_path / "heads", medusa_config(shape, 2), {})
    options = whole(draft=str(tmp_path / "heads"))
    assert drawn_head(options, shape) is None
    assert VllmSpeculative.files(shape, options)[0].parent == tmp_path / "heads"
    with pytest.raises(UserError, match="'drafts': is 3; expected at most 2, the heads in"):
        VllmSpeculative.check(shape, {**options, "drafts": 3})


def test_the_demo_model_which_has_none_gets_them_for_a_replay_alone() -> None:
    assert drawn_head(whole(), models.BUNDLED["demo"]) is not None
    assert drawn_head(whole(replay=None), models.BUNDLED["demo"]) is None
    assert drawn_head(whole(method="eagle3"), models.BUNDLED["demo"]) is None


def test_other_kinds_of_heads_are_where_they_were() -> None:
    """A stored trial is known by the files that it read."""
    with outline(Model("llama-3.1-8b", shape=True)) as directory:
        found = drawn_head(whole(method="eagle3"), directory)
    assert found is not None
    assert found.folder.name == "eagle3-of-width-4096-a21d47c172f6"


@pytest.mark.parametrize(("cache", "taken"), [("eagle-lab", True), ("cache", False)])
def test_a_cache_under_a_path_that_vllm_takes_for_another_methods(
    cache: str, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
    with outline(small_shape(tmp_path / "small", num_hidden_layers=8)) as directory:
        VllmSpeculative.check(directory, whole(method="eagle3"))
        if not taken:
            VllmSpeculative.check(directory, whole())
            return
        with pytest.raises(UserError, match=r"with 'eagle-' for a head; set XDG_CACHE_HOME$"):
            VllmSpeculative.check(directory, whole())
        with elsewhere(True):
            VllmSpeculative.check(directory, whole())


def test_found_belongs_to_a_search(shape: Path) -> None:
    rates = {"acceptance": 0.8, "found": 0.5}
    with pytest.raises(UserError, match=r"'replay'\.found: belongs to a search of the text, and m"):
        VllmSpeculative.check(shape, whole(replay=rates))
    for acceptance in (0.8, [0.8, 0.5], {"length": 2.2, "drafts": 3}):
        VllmSpeculative.check(shape, whole(replay={"acceptance": acceptance}))
