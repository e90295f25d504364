"""What backends measure of themselves explains the numbers and enters none of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from tests.support.results.make_trials import generation, record, told, trial
from tests.support.results.stored_runs import of, run_of

COSTS = {
    "exit_layers": [2],
    "costs": {
        "plain_us": 1e9,
        "segment_us": [7e8, 1e8],
        "exit_head_us": [5e8],
        "final_head_us": 3e8,
    },
}
STEP_TIMES = {"forward_us": 1e9, "check_us": 5e8, "fill_us": 1e8, "layers_total": 40.0}
BY_THE_STAMPS = (
    *("ttft_s", "tpot_s", "itl_s", "e2e_s", "decode_tok_per_s", "submit_lag_s", "client_lag_s"),
    *("output_tok_per_s", "request_per_s", "goodput", "inner_token_latency_s", "speedup"),
)


def row(folder: Path, telemetry: dict[str, float], costs: dict[str, Any]) -> dict[str, Any]:
    plain = [generation(f"r{i}", [10, 20, 30, 40]) for i in range(2)]
    fast = [generation(f"r{i}", [10, 15, 20, 25], telemetry=telemetry) for i in range(2)]
    info = told("fast", costs)
    mine = dataclasses.replace(record(trial("fast"), fast), backend=info)
    run = run_of(folder, record(trial(options={"block": 32}), plain), mine)
    return of(run.evaluated["trials"], "fast")


def test_no_latency_and_no_speedup_knows_what_a_backend_timed(tmp_path: Path) -> None:
    without, with_times = row(tmp_path / "a", {}, {}), row(tmp_path / "b", STEP_TIMES, COSTS)
    named = [name for name in without if name.startswith(BY_THE_STAMPS)]
    assert len(named) > 30
    assert [name for name in named if without[name] != with_times[name]] == []
    assert with_times["speedup"] == 2.0
    assert with_times["check_time_share"] == 0.5, "which is told beside them"
