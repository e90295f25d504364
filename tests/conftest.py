"""What every test may ask for."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# no test asserts a time, and a busy machine may take its time over an example
settings.register_profile("decodebench", deadline=None)
settings.load_profile("decodebench")

# a shell ignores it in what it starts in the background, and children would inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data samples beside the repository; skips where there is none."""
    folder = _ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real data samples are not here (expected in ../shared/data)")
    return folder


@pytest.fixture(scope="module", autouse=True)
def _kept_from_collection() -> None:
    """What earlier files have left, libraries above all, is not looked through again: a load of
    requests collects garbage before it begins, which takes 0.2 s beside torch."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """What stays frozen at the end is told as leaked."""
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def torch_threads() -> Iterator[None]:
    """torch's threads, which an engine that is opened in this process sets for all of it: sums of
    the next file's tests would have other roundings than those that the session keeps."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else None
    yield
    if torch and before:
        torch.set_num_threads(before)
