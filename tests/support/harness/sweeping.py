"""Sweeps of made-up trials, and what their processes left behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from harness.core.nouns import Trial, TrialRecord
from harness.measure.sweep import SweepResult, run_sweep
from tests.support.harness.sessions import MemoryStore, open_session


def sweep(
    trials: list[Trial], store: MemoryStore | None = None, **settings: Any
) -> tuple[SweepResult, list[TrialRecord]]:
    store = store or MemoryStore()
    result = run_sweep(
        trials, store, open_session, environment={"cpu": "x"}, fingerprint="machine", **settings
    )
    return result, store.records


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
