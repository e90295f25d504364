from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.engine.costs import cost_model
from harness.core.nouns import Generation
from harness.core.pass_costs import StepCosts
from results.metrics import exit_costs
from results.metrics.arrays import from_record
from results.rows import cells, summaries
from tests.support.results.make_trials import generation, record, told, trial
from tests.support.results.stored_runs import of, run_of

COSTS = {
    "segment_us": [10.0, 20.0, 30.0],
    "segment_us_full": [10.0, 25.0, 40.0],
    "exit_head_us": [2.0, 3.0],
    "final_head_us": 5.0,
}
OPTIONS: dict[str, Any] = {"exit_layers": [2, 4], "max_drafts": 5, "costs": COSTS}
COUNTS = {
    "steps": 10.0,
    "step_tokens": 16.0,
    "early_predictions": 8.0,
    "checks_layer_2": 18.0,
    "exits_layer_2": 5.0,
    "accepted_layer_2": 4.0,
    "checks_layer_4": 13.0,
    "exits_layer_4": 3.0,
    "accepted_layer_4": 2.0,
}
ONE_ROW = 18 * 10 + 13 * 20 + 10 * 30 + 18 * 2 + 13 * 3 + 10 * 5
"""Every token goes through the first segment, those that did not leave at 2 through the second."""
MORE = 5 * (25 - 20) / 5 + 8 * (40 - 30) / 5


def decoded(seconds: float = 0.002, telemetry: dict[str, float] | None = None) -> Generation:
    counts = COUNTS if telemetry is None else telemetry
    stamps = [10 + seconds * 1000 * i / 16 for i in range(17)]
    return generation("r0", stamps, telemetry=counts)


def predicted(*generations: Generation, **changes: Any) -> dict[str, float | None]:
    requests = from_record(record(trial(), generations))
    return exit_costs.predictions(requests, told("adadecode", {**OPTIONS, **changes}))


def test_counted_passes_are_charged_what_they_cost() -> None:
    found = predicted(decoded(seconds=0.002))
    assert found["predicted_speedup"] == pytest.approx(65 * 16 / (ONE_ROW + MORE))
    assert found["predicted_speedup_one_row"] == pytest.approx(65 * 16 / ONE_ROW)
    assert found["pass_time_share"] == pytest.approx((ONE_ROW + MORE) / 2000, rel=1e-4)


def test_full_rows_and_plain_cost_are_optional() -> None:
    without = {k: v for k, v in COSTS.items() if k != "segment_us_full"}
    found = predicted(decoded(), costs=without)
    assert found["predicted_speedup"] == found["predicted_speedup_one_row"]
    plain = predicted(decoded(), costs={**COSTS, "plain_us": 60.0})
    assert plain["predicted_speedup"] == pytest.approx(60 * 16 / (ONE_ROW + MORE))


def test_rows_of_the_final_head_may_have_a_cost_of_their_own() -> None:
    found = predicted(decoded(), costs={**COSTS, "final_head_us_full": 9.0})
    assert found["predicted_speedup"] == pytest.approx(65 * 16 / (ONE_ROW + MORE + 8 * 4 / 5))


def test_means_are_geometric_and_of_completed_requests() -> None:
    twice = {name: 2 * value for name, value in COUNTS.items()} | {"step_tokens": 64.0}
    lost = dataclasses.replace(decoded(), request_id="lost", finished="error")
    other = dataclasses.replace(decoded(telemetry=twice), request_id="r1")
    found = predicted(decoded(), other, lost)
    one = 65 * 16 / (ONE_ROW + MORE)
    assert found["predicted_speedup"] == pytest.approx(math.sqrt(one * 2 * one))


def test_no_exits_taken_costs_the_checks() -> None:
    counts = {"steps": 16.0, "step_tokens": 16.0, "checks_layer_2": 16.0, "checks_layer_4": 16.0}
    found = predicted(decoded(telemetry=counts))
    assert found["predicted_speedup"] == pytest.approx(65 / 70)


def test_an_engine_without_exits_is_plain_decoding() -> None:
    costs = {"segment_us": [60.0], "exit_head_us": [], "final_head_us": 5.0}
    counts = {"steps": 16.0, "step_tokens": 16.0}
    found = predicted(decoded(telemetry=counts), exit_layers=[], costs=costs)
    assert found["predicted_speedup"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"costs": None},
        {"exit_layers": "auto"},
        {"exit_layers": [2]},
        {"max_drafts": None},
        {"max_drafts": 0},
        {"costs": {**COSTS, "exit_head_us": [1.0]}},
        {"costs": {**COSTS, "segment_us_full": [1.0]}},
        {"costs": {**COSTS, "final_head_us": "dear"}},
        {"costs": {"segment_us": [0.0] * 3, "exit_head_us": [0.0] * 2, "final_head_us": 0.0}},
    ],
)
def test_costs_that_do_not_fit_predict_nothing(changes: dict[str, Any]) -> None:
    assert set(predicted(decoded(), **changes).values()) == {None}


def test_no_counts_predict_nothing() -> None:
    assert set(predicted(decoded(telemetry={})).values()) == {None}
    assert set(exit_costs.predictions(None, told("adadecode", OPTIONS)).values()) == {None}


def test_it_is_what_the_backend_foresaw_where_the_text_is_the_one_replayed() -> None:
    """Chosen by a replay of the trace and then decoded just so: the same speed-up from the counts
    and the costs as they are told."""
    draw = np.random.default_rng(3)
    costs = StepCosts((10.0, 20.0, 30.0), (2.0, 3.0), 5.0, (10.0, 25.0, 40.0), 9.0, 66.0)
    confidence, agrees = draw.random((500, 2)), draw.random((500, 2)) < 0.9
    trace = cost_model.Trace((2, 4), confidence, agrees, np.array([0, 200, 500]))
    foreseen = cost_model.replay(trace, (2, 4), (0.6, 0.5), costs, 5)
    counts = {"steps": float(foreseen.cycles), "step_tokens": float(foreseen.tokens)}
    for name in ("checks", "exits"):
        for layer, count in zip((2, 4), getattr(foreseen, name), strict=True):
            counts[f"{name}_layer_{layer}"] = float(count)
    found = predicted(decoded(telemetry=counts), costs=costs.to_json())
    assert found["predicted_speedup"] == pytest.approx(foreseen.speedup, rel=1e-12)
    assert min(foreseen.exits) > 50


def test_the_rows_of_a_run_have_exits_and_predictions(tmp_path: Path) -> None:
    exits = trial("exits", options={"gamma": 0.75})
    records = []
    for repeat in (0, 1):
        ran = record(dataclasses.replace(exits, repeat=repeat), [decoded()])
        backend = told("exits", {"gamma": [0.75, 0.75], **OPTIONS})
        records.append(dataclasses.replace(ran, backend=backend))
        native = dataclasses.replace(trial("autoregressive"), repeat=repeat)
        records.append(record(native, [decoded(seconds=0.004, telemetry={"steps": 16.0})]))
    run = run_of(tmp_path, *records)
    row, plain = of(summaries(run), "exits"), of(summaries(run), "autoregressive")
    assert row["exits_by_layer"] == {
        "2": {"checks": 18.0, "exits": 5.0, "accepted": 4.0},
        "4": {"checks": 13.0, "exits": 3.0, "accepted": 2.0},
    }
    assert (row["speedup_native"], row["consistency_native"]) == (pytest.approx(2.0), 1.0)
    assert row["speedup"] is None
    assert row["predicted_speedup"] == pytest.approx(65 * 16 / (ONE_ROW + MORE))
    assert [plain[n] for n in ("exits_by_layer", *exit_costs.NAMES)] == [None] * 4
    assert (plain["speedup_native"], plain["consistency_native"]) == (1.0, 1.0)
    cell = of(cells(run), "exits")
    assert cell["exits_by_layer"]["4"] == {"checks": 26.0, "exits": 6.0, "accepted": 4.0}
    assert cell["predicted_speedup"] == row["predicted_speedup"]
    assert cell["speedup_native"] == pytest.approx(2.0)
    assert of(cells(run), "autoregressive")["exits_by_layer"] is None
    assert run.trials["predicted_speedup"].notna().sum() == 2
