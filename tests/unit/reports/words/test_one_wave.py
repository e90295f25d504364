"""Closed loads that are hardly more than one wave of requests."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from harness.core.nouns import Load
from reports.cells import Overview, overview
from reports.page import render
from reports.words.doubts.one_wave import sentences
from results import load
from tests.support.results.report_pages import section
from tests.support.results.report_runs import ENGINES, write_run

LOADS = [Load("closed", concurrency=n) for n in (1, 4, 8)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("waves")
    small: dict[str, Any] = {"workloads": ["gsm8k"], "loads": LOADS, "repeats": 2}
    return write_run(folder, engines=ENGINES[:2], requests=12, **small)


def test_a_burst_is_said_once_for_its_load(folder: Path) -> None:
    seen = overview(load(folder))
    (found,) = sentences(seen.cells)
    assert found.startswith("Under closed c=8 12 requests are hardly more than one wave: 8 begin ")
    assert found.endswith("for these ask 16 requests or more.")
    page = render(load(folder))
    for name in ("results", "throughput"):
        assert "12 requests are hardly more than one wave" in section(page, name)


@pytest.mark.parametrize(("requests", "is_told"), [(7, False), (8, True), (15, True), (16, False)])
def test_fewer_than_are_in_flight_and_two_waves_are_none(
    folder: Path, requests: int, is_told: bool
) -> None:
    seen = overview(load(folder))
    last = changed(seen, requests)
    assert bool([*sentences(last.cells)]) is is_told


def changed(seen: Overview, requests: int) -> Overview:
    cells = [cell for cell in seen.cells if cell.load_value == 8]
    made = [dataclasses.replace(c, metrics={**c.metrics, "requests": requests}) for c in cells]
    return dataclasses.replace(seen, cells=tuple(made))
