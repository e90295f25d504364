from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.nouns import TrialRecord
from results.compare.decomposition import PARTS, speedup_parts
from results.compare.stats import log_ratios
from results.metrics.arrays import RequestArrays, from_record
from results.rows import cells, summaries
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import of, run_of


def arrays(commit_ms: list[float], tokens: list[int], steps: float | None) -> RequestArrays:
    return from_record(one("fast", commit_ms, tokens, steps))


def one(
    backend: str, commit_ms: list[float], tokens: list[int], steps: float | None, repeat: int = 0
) -> TrialRecord:
    telemetry: dict[str, Any] = {} if steps is None else {"steps": steps}
    asked = trial(backend, options={"block": 32} if backend == "vllm" else {}, repeat=repeat)
    requests = [
        generation(name, [at * f for at in commit_ms], tokens=tokens, telemetry=telemetry)
        for name, f in (("r0", 1), ("r1", 3))
    ]
    return record(asked, requests)


def test_fewer_steps_longer_steps_and_a_shorter_answer() -> None:
    """6 tokens in 2 steps of 30 ms against 8 in 8 steps of 15 ms, after the first commit."""
    this = arrays([10, 40, 70], [1, 3, 3], 2)
    plain = arrays([10 + 15 * i for i in range(9)], [1] * 9, 8)
    found = {name: np.exp(logs[0]) for name, logs in speedup_parts(this, plain).items()}
    assert found["speedup_steps"] == pytest.approx((8 / 8) / (2 / 6))
    assert found["speedup_step_time"] == pytest.approx(15 / 30)
    assert found["speedup_length"] == pytest.approx(8 / 6)
    logs = speedup_parts(this, plain)
    assert logs["speedup_steps"] + logs["speedup_step_time"] == pytest.approx(
        log_ratios(this, plain)
    )
    assert sum(logs[name][0] for name in PARTS) == pytest.approx(np.log(120 / 60))


@pytest.mark.parametrize("steps", [None, 0.0])
def test_who_counts_no_steps_has_no_parts(steps: float | None) -> None:
    counted, not_counted = arrays([0, 10], [1, 2], 1), arrays([0, 10], [1, 2], steps)
    for pair in ((counted, not_counted), (not_counted, counted)):
        assert all(np.isnan(logs).all() for logs in speedup_parts(*pair).values())


def test_an_answer_in_one_commit_has_no_parts() -> None:
    this, other = arrays([10], [4], 1), arrays([10, 20], [1, 3], 3)
    for pair in ((this, other), (this, this)):
        assert all(np.isnan(logs).all() for logs in speedup_parts(*pair).values())


def test_rows_cells_and_frames_have_the_parts_with_intervals(tmp_path: Path) -> None:
    records = []
    for repeat, factor in enumerate((1.0, 1.1)):
        plain = [10 + 15 * factor * i for i in range(9)]
        records.append(one("vllm", plain, [1] * 9, 8, repeat))
        records.append(one("fast", [10, 40, 70], [1, 3, 3], 2, repeat))
    run = run_of(tmp_path, *records)
    cell = next(cell for cell in cells(run) if cell["backend"] == "fast")
    row = of(summaries(run), "fast")
    assert cell["speedup_steps"] == pytest.approx(3.0)
    assert cell["speedup"] == pytest.approx(cell["speedup_steps"] * cell["speedup_step_time"])
    assert cell["speedup_steps_low"] == pytest.approx(3.0)
    # the answers to two prompts are too few lengths for an interval
    assert (cell["speedup_length_low"], cell["speedup_length_high"]) == (None, None)
    assert cell["speedup_step_time_low"] < cell["speedup_step_time"]
    assert row["speedup_step_time"] == pytest.approx(0.5)
    assert row["speedup_step_time_low"] == cell["speedup_step_time_low"]
    frame = run.requests[run.requests["backend"] == "fast"]
    assert frame["speedup_length"].to_list() == pytest.approx([8 / 6] * 4)
    assert (frame["speedup_steps"] * frame["speedup_step_time"]).to_list() == pytest.approx(
        frame["speedup"].to_list()
    )
