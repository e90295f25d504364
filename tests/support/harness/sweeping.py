"""Sweeps of made-up trials, and what their processes left behind."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil

from harness.core.nouns import Trial, TrialRecord
from harness.measure.fleet import Fleet
from harness.measure.sweep import StoreProtocol, SweepResult, run_sweep
from tests.support.harness.sessions import MemoryStore, open_session


def sweep(
    trials: list[Trial],
    store: MemoryStore | None = None,
    *,
    room: int | None = None,
    log_dir: Path | None = None,
    weight_bytes: Callable[[Trial], int] = lambda trial: 0,
    **settings: Any,
) -> tuple[SweepResult, list[TrialRecord]]:
    """`room`: as in `room_for`."""
    store = store or MemoryStore()
    with room_for(room), Fleet(open_session, log_dir, weight_bytes) as fleet:
        result = run_sweep(
            trials, store, fleet, environment={"cpu": "x"}, fingerprint="machine", **settings
        )
    return result, store.records


def swept(trials: Sequence[Trial], store: StoreProtocol, **settings: Any) -> SweepResult:
    """`run_sweep` on engines of its own."""
    with Fleet(open_session, None) as fleet:
        return run_sweep(trials, store, fleet, **settings)


@contextlib.contextmanager
def room_for(engines: int | None) -> Iterator[None]:
    """Memory for so many engines side by side, whatever they occupy; None: what there is."""
    if engines is None:
        yield
        return
    with patch.object(Fleet, "_fits", lambda fleet, _: len(fleet._alive) < engines):
        yield


def opened(path: Path) -> list[list[str]]:
    """(process id, engine key) of every session opened, in order."""
    return [line.split() for line in path.read_text().splitlines()]


def wait_until(condition: Callable[[], bool], limit_s: float) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
