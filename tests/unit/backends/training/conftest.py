"""A tiny model, finished heads and a classifier of it, made once for all tests of training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.engine import tiny_classifier
from tests.support.engine.tiny_heads import train, write_model


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
