"""The stages of a training: what is kept where one stops, a full disk, and who may write."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backends.checkpoints.classifier import Classifier, write_classifier
from backends.checkpoints.draft_heads.files import write_files
from backends.checkpoints.exit_heads import write_folder
from backends.engine.costs.cost_model import Trace
from backends.training.classifier import labels as classifier_labels
from backends.training.classifier.labels import label
from backends.training.exits import cache as exit_cache
from backends.training.exits import display as exit_display
from backends.training.exits.answers import _append
from backends.training.exits.backbone import Backbone, architecture_of, read_backbone
from backends.training.exits.cache import build_cache
from backends.training.exits.data import TrainPrompt
from backends.training.exits.fit import disk_bytes
from backends.training.exits.recipe import STATE, ExitRecipe
from backends.training.exits.run import ExitTraining, StageProgress
from backends.training.labels.train import train as train_labels
from backends.training.small_models.checkpoint import save_state
from backends.training.small_models.demo import train_demo
from harness.core.errors import UserError
from harness.core.files import only_writer
from tests.support.engine.tiny_heads import StandInKillError, train

PAIRS = [
    (TrainPrompt("gsm8k", str(i), list(range(9, 12 + i)), 64, False), list(range(30, 34 + i)))
    for i in range(5)
]


@pytest.fixture
def raw(model: Path) -> Backbone:
    return read_backbone(model, architecture_of(model), "cpu", normed=False)


def until(stop: int, seen: list[int]) -> Callable[[int], bool]:
    def going_on(done: int) -> bool:
        seen.append(done)
        return done < stop

    return going_on


def test_states_go_on_where_the_time_was_up(
    raw: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped by the time, then by a kill: each answer's pass is made once, and the states are
    those of a run left alone."""
    monkeypatch.setitem(exit_cache.TOKENS, "cpu", 1)
    for out in ("whole", "stopped"):
        (tmp_path / out / STATE).mkdir(parents=True)
    whole = build_cache(tmp_path / "whole", "x", raw, (1, 3), PAIRS, lambda done: True)
    seen: list[int] = []
    assert build_cache(tmp_path / "stopped", "x", raw, (1, 3), PAIRS, until(2, seen)) is None

    def killed(done: int) -> bool:
        seen.append(done)
        if done == 3:
            raise StandInKillError
        return True

    with pytest.raises(StandInKillError):
        build_cache(tmp_path / "stopped", "x", raw, (1, 3), PAIRS, killed)
    found = build_cache(tmp_path / "stopped", "x", raw, (1, 3), PAIRS, until(9, seen))
    assert seen == [0, 1, 2, 2, 3, 3, 4]
    assert whole is not None
    assert found is not None
    assert torch.equal(found.states, whole.states)
    assert [path.name for path in (tmp_path / "stopped" / STATE).iterdir()] == ["x.states"]


def test_labels_go_on_where_the_time_was_up(
    raw: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(classifier_labels.LOGITS, "cpu", 1)
    (tmp_path / STATE).mkdir()
    cache = build_cache(tmp_path, "x", raw, (1, 2, 3), PAIRS * 5, lambda done: True)
    assert cache is not None
    whole = label(tmp_path / "whole", raw, cache, lambda done: True)
    seen: list[int] = []
    assert label(tmp_path / "some", raw, cache, until(32, seen)) is None
    found = label(tmp_path / "some", raw, cache, until(10**6, seen))
    assert seen[:5] == [0, 16, 32, 32, 48]
    assert whole is not None
    assert found is not None
    assert torch.equal(found.agrees, whole.agrees)
    assert torch.equal(found.margin, whole.margin)


def test_a_call_does_its_first_piece_of_work_however_little_time_it_has(tmp_path: Path) -> None:
    run = ExitTraining(tmp_path, ExitRecipe("", (1,), ("gsm8k",)), 0.0, None)
    assert [run.stage("answers", 9)(0), run.stage("answers", 9)(3)] == [True, False]


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """Files of at most `size` bytes: writing more fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _classifier(path: Path) -> None:
    made = Classifier(path.parent, torch.zeros(2, 4096), torch.zeros(2), (1,), {})
    write_classifier(made, "", {})


def _heads(path: Path) -> None:
    trace = Trace((1,), np.zeros((1, 1)), np.zeros((1, 1)), np.array([0, 1]))
    order = torch.arange(9999)
    write_folder(path.parent, "", "lightweight", {1: torch.eye(64)}, order, trace, {})


WRITERS: dict[str, Callable[[Path], object]] = {
    "fit.pt": lambda path: save_state(path, {"x": torch.zeros(9999)}),
    "heads.safetensors": _heads,
    "classifier.safetensors": _classifier,
    "model.safetensors": lambda path: write_files(path.parent, {}, {"x": torch.zeros(9999)}),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_one_line_with_the_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"as it was")
    with small_disk(4096), pytest.raises(UserError, match=f"{name}: not written, is the disk full"):
        WRITERS[name](tmp_path / name)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"as it was"}


def test_a_disk_too_small_for_what_it_promised_is_told_before_anything_is_mapped(
    raw: Backbone, tmp_path: Path
) -> None:
    (tmp_path / STATE).mkdir()
    with small_disk(4096):
        with pytest.raises(OSError, match="File too large") as caught:
            build_cache(tmp_path, "x", raw, (1, 2, 3), PAIRS, lambda done: True)
        assert str(caught.value.filename).endswith("x.begun")
        with pytest.raises(OSError, match="File too large") as caught:
            _append(tmp_path / "answers.jsonl", "x" * 9999)
        assert caught.value.filename == str(tmp_path / "answers.jsonl")
    assert not list((tmp_path / STATE).iterdir())


def test_the_place_for_all_that_is_to_come_is_looked_for_before_and_behind_the_answers(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """8 rows of up to 256 tokens at 3 boundaries of width 32, float32, and two transforms."""
    shown = exit_display.printer("KL")
    most = 3 * 8 * 255 * 32 * 4 + disk_bytes(2 * 32 * 32)
    usage: Any = type("Usage", (), {"free": 10**12})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)

    def remark(free: int) -> str:
        seen: list[StageProgress] = []

        def first(progress: StageProgress) -> None:
            seen.append(progress)
            raise StandInKillError

        usage.free = free
        with pytest.raises(StandInKillError):
            train(model, tmp_path / "some", progress=first)
        return seen[0].remark

    assert remark(most) == ""
    assert remark(most - 10_000).startswith("should all answers be as long as they may")
    usage.free = 0
    with pytest.raises(UserError, match="bytes are free; the answers are kept: make room"):
        train(model, tmp_path / "none", progress=shown)
    told = capsys.readouterr().out
    assert told.startswith("should all answers be as long as they may, ")
    assert "none/state: hidden states, the training's state and its files take " in told
    usage.free = 10**12
    seen: list[StageProgress] = []
    train(model, tmp_path / "none", progress=seen.append)
    assert "answers" not in {progress.stage for progress in seen}


def test_two_trainings_never_share_a_folder(model: Path, tmp_path: Path) -> None:
    with only_writer(tmp_path, "training"):
        for begin in (
            lambda: train(model, tmp_path),
            lambda: train_demo(tmp_path),
            lambda: train_labels("shapes", tmp_path, print),
        ):
            with pytest.raises(UserError, match="another training is writing into it; let it end"):
                begin()
    assert not list(tmp_path.iterdir())
