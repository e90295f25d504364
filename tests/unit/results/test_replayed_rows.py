"""Trials whose decisions were replayed: costs alone, and never beside real runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import results
from harness.core.nouns import REPLAYED, Load
from results import registry
from results.rows import cells, summaries
from tests.support.results.report_runs import MadeUpBackend, write_run

REPLAY = {"replay": "demo"}
REAL = (
    MadeUpBackend("vllm", 0.010, provenance="official code"),
    MadeUpBackend("vllm-early-exit", 0.008, changes=0.2, lossless=False),
)
MADE = (
    MadeUpBackend("vllm", 0.020, REPLAY, provenance=REPLAYED, lossless=False),
    MadeUpBackend("adadecode", 0.010, REPLAY, provenance=REPLAYED, lossless=False),
)
ONE_LOAD = (Load("closed", concurrency=1),)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> results.Run:
    folder = tmp_path_factory.mktemp("mixed")
    run = write_run(folder, engines=REAL + MADE, workloads=("gsm8k",), loads=ONE_LOAD)
    return results.load(run)


def test_nothing_is_said_of_answers(mixed: results.Run) -> None:
    names = [key for m in registry.METRICS if m.is_of_answers for key in m.keys]
    assert {"consistency_ratio", "first_divergence", "exact_match", "noise_floor"} <= {*names}
    for row in summaries(mixed):
        told = [name for name in names if row[name] is not None]
        assert bool(told) == (row["provenance"] != REPLAYED), (row["backend"], told)


def test_replays_are_compared_with_replays(mixed: results.Run) -> None:
    found = {(c["backend"], c["provenance"] == REPLAYED): c for c in cells(mixed)}
    assert found["adadecode", True]["speedup"] == pytest.approx(2.0, rel=0.05)
    assert found["vllm-early-exit", False]["speedup"] == pytest.approx(1.25, rel=0.05)
    assert found["vllm", False]["is_reference"]
    assert found["vllm", True]["is_reference"]
    assert found["vllm", True]["speedup"] == 1.0


def test_a_replay_without_one_of_the_reference_has_no_speedup(tmp_path: Path) -> None:
    write_run(tmp_path, engines=(*REAL, MADE[1]), workloads=("gsm8k",), loads=ONE_LOAD)
    (alone,) = [c for c in cells(results.load(tmp_path)) if c["backend"] == "adadecode"]
    assert alone["speedup"] is None
    assert alone["output_tok_per_s"] > 0


def test_its_requests_say_nothing_of_answers(mixed: results.Run) -> None:
    frame: Any = mixed.requests
    ours = frame[frame.options.str.contains("replay") & (frame.backend == "adadecode")]
    assert ours.equal_to_reference.isna().all()
    assert ours.rouge_l_to_full.isna().all()
    assert ours.speedup.notna().all()
    real = frame[frame.backend == "vllm-early-exit"]
    assert real.equal_to_reference.notna().all()
