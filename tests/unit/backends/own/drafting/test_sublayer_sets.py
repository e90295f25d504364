"""Folders of sublayers to leave out: found by name, bound to a checkpoint, checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import models
from backends.engine.sublayers.sets import Sublayers
from backends.own.drafting.sublayer_sets import ABOUT, BUNDLED, find_set, read_set
from harness.core.errors import UserError

DEMO = models.BUNDLED["demo"]


def refused(where: Path, **changes: Any) -> str:
    about = json.loads((BUNDLED / ABOUT).read_text())
    (where / ABOUT).write_text(json.dumps(about | changes))
    with pytest.raises(UserError) as caught:
        read_set(where / ABOUT, DEMO, 8)
    said = str(caught.value)
    assert said.startswith(f"{where / ABOUT}: ")
    assert "\n" not in said
    return said


def test_the_demo_models_set() -> None:
    where = find_set("option", "auto", DEMO)
    found = read_set(where, DEMO, 8)
    assert 0 < len(found) < 16
    assert find_set("option", str(BUNDLED), DEMO) == where
    about = json.loads(where.read_text())
    assert Sublayers(*map(frozenset, (about["skipped_attention"], about["skipped_mlp"]))) == found
    assert about["predicted"]["speed_up"] > 1


def test_sets_that_do_not_fit(tmp_path: Path) -> None:
    assert "trained for another checkpoint (sha256 abc)" in refused(tmp_path, checkpoint="abc")
    assert "format 2; this version reads 1" in refused(tmp_path, format=2)
    assert "layer 8 is left out: expected 0 to 7" in refused(tmp_path, skipped_mlp=[1, 8])
    every = list(range(8))
    said = refused(tmp_path, skipped_mlp=every, skipped_attention=every)
    assert "all sublayers of 8 layers are left out" in said
    said = refused(tmp_path, skipped_attention=[1, "2"])
    assert "skipped_attention: is [1, '2']; expected a list of layers, counted from 0" in said
    assert "expected a list of layers" in refused(tmp_path, skipped_mlp=3)
    assert "expected a list of layers" in refused(tmp_path, skipped_mlp=[True])


def test_names_that_mean_no_set(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="option 'sublayers': no folder 'autoo'; did you mean"):
        find_set("option", "autoo", DEMO)
    with pytest.raises(UserError, match="no bundled set; find one with 'decodebench train subl"):
        find_set("option", "auto", tmp_path)
    with pytest.raises(UserError, match="not readable"):
        read_set(find_set("option", str(tmp_path), DEMO), DEMO, 8)
