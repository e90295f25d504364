"""A tiny model, finished heads and a classifier of it, made once for all tests of training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.training.exits import kept as exit_kept
from tests.support.engine import tiny_classifier
from tests.support.engine.tiny_heads import train, write_model


@pytest.fixture(scope="session", autouse=True)
def _no_answers_of_others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's cache would spare a training the stage that a test is about."""
    with pytest.MonkeyPatch.context() as patch:
        kept = tmp_path_factory.mktemp("cache")
        patch.setattr(exit_kept, "cache_folder", lambda: kept)
        yield


@pytest.fixture(autouse=True)
def _no_answers_of_other_tests(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(exit_kept, "cache_folder", lambda: kept)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def trained(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("heads")
    assert train(model, out)["finished"]
    return out


@pytest.fixture(scope="session")
def classified(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("classifier")
    assert tiny_classifier.train(model, out, workloads=["gsm8k", "humaneval"])["finished"]
    return out
