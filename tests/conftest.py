"""What every test may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data samples beside the repository; skips where there is none."""
    folder = _ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real data samples are not here (expected in ../shared/data)")
    return folder
