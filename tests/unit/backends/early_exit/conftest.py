"""The backend whose answers are known in advance takes the place of the engine."""

from __future__ import annotations

import pytest

import backends
from tests.support.exits.fake_exits import Opener


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Opener:
    opener = Opener()
    monkeypatch.setattr(backends, "open_backend", opener)
    return opener
