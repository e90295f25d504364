"""Stored runs the report's tests share; written once, read only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.page import write_report
from tests.support.results.report_pages import LEAVING
from tests.support.results.report_runs import LOADS, TECHNIQUES, MadeUpBackend, write_run

SMALL: dict[str, Any] = {
    "workloads": ["cnn_dailymail", "gsm8k"],
    "repeats": 2,
    "requests": 12,
    "loads": LOADS[:2],
}


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every backend finished, all valid."""
    return write_run(tmp_path_factory.mktemp("run"), **SMALL)


@pytest.fixture(scope="session")
def troubled_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One backend failed, one is not valid."""
    engines = (
        MadeUpBackend("vllm", 0.010, provenance="official code"),
        MadeUpBackend("noisy", 0.005, reasons=("machine-noisy: others used 30% of the machine",)),
        MadeUpBackend("broken", 0.008, status="failed"),
        MadeUpBackend("tetris", 0.0102, provenance="simulation"),
    )
    return write_run(tmp_path_factory.mktemp("troubled"), engines=engines, **SMALL)


@pytest.fixture(scope="session")
def run_text(run_dir: Path) -> str:
    """The page of `run_dir`."""
    return write_report(run_dir).read_text()


@pytest.fixture(scope="session")
def troubled_text(troubled_dir: Path) -> str:
    """The page of `troubled_dir`."""
    return write_report(troubled_dir).read_text()


@pytest.fixture(scope="session")
def leaving_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The techniques of batches that leave early, beside the plain engine."""
    return write_run(tmp_path_factory.mktemp("leaving"), engines=TECHNIQUES, **LEAVING)
