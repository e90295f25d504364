"""Rows and cells of stored runs: the names that never vary, and pooling."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import results
from harness.core.nouns import Load, Slo
from results.metrics.distribution import describe, percentile
from results.rows import cells, summaries
from tests.support.results.make_trials import a_record, generation, record, trial
from tests.support.results.stored_runs import REFERENCE, answer, of, run_of

PERCENTILES = ("p50", "p95", "p99", "mean")


CONTRACT = {
    *("backend", "options", "provenance", "model", "workload", "source", "load", "repeat"),
    *("status", "valid", "invalid_reasons", "void_metrics", "realised_rate_per_s"),
    *(f"{n}_{p}" for n in ("ttft_s", "tpot_s", "itl_s", "e2e_s") for p in PERCENTILES),
    *(f"decode_tok_per_s_{p}" for p in PERCENTILES),
    *("inner_token_latency_s", "output_tok_per_s", "decode_tok_per_s"),
    *("goodput_req_per_s", "goodput_tok_per_s", "good_and_right_per_s"),
    *("consistency_ratio", "first_divergence", "noise_floor"),
    *("early_exit_rate", "early_prediction_rate", "rejection_rate"),
    *("early_exit_rate_own", "mean_exit_layer", "model_layers", "mean_decode_batch"),
    *("mixed_steps", "mixed_step_share", "check_time_share", "fill_time_share"),
    *("exits_by_layer", "exits_by_batch"),
    *("throughput_ratio", "inner_token_latency_ratio"),
    *("tokens_per_step", "acceptance_rate", "drafts_per_step", "full_passes_per_token"),
    "preemptions",
    *("speedup", "speedup_low", "speedup_high", "speedup_native", "consistency_native"),
    *("rouge_l_to_full", "rouge_l_to_label", "pass_at_1", "exact_match"),
    "exact_match_flexible",
    *("slo_ttft_ms", "slo_tpot_ms", "slo_e2e_ms", "max_new_tokens", "ignore_eos", "reload"),
    *("temperature", "top_p"),
    *("workload_checksum", "load_checksum", "model_checksum", "machine"),
    *("peak_memory_bytes", "energy_j"),
}


def test_every_name_of_the_contract_is_always_there(tmp_path: Path) -> None:
    failed = record(trial("fast"), [], status="failed", error="boom")
    nameless = dataclasses.replace(record(trial("fast", repeat=1), []), backend=None)
    run = run_of(tmp_path, record(REFERENCE, [answer(5, [1, 2])]), failed, nameless)
    rows = summaries(run)
    assert len(rows) == 3
    for row in rows:
        assert row.keys() >= CONTRACT
        assert row.keys() == rows[0].keys()
        assert json.loads(json.dumps(row, allow_nan=False)) == row
    boom = of(rows, "fast", 0)
    assert (boom["status"], boom["valid"], boom["error"]) == ("failed", False, "boom")
    assert boom["invalid_reasons"] == ["failures: the trial ended as 'failed'"]
    assert {boom[n] for n in CONTRACT if n.endswith(PERCENTILES)} == {None}
    assert boom["output_tok_per_s"] is None
    assert of(rows, "fast", 1)["provenance"] is None


def test_whole_trials_are_set_against_the_reference_of_their_repeat(tmp_path: Path) -> None:
    """Two tokens after 10 and 30 ms, against 10 and 20 ms, counted from the submit at 0."""
    slow, fast = answer(20, [1, 2]), answer(10, [1, 2])
    later = dataclasses.replace(trial("fast"), repeat=1)
    run = run_of(
        tmp_path, record(REFERENCE, [slow]), record(trial("fast"), [fast]), record(later, [fast])
    )
    rows = summaries(run)
    row, alone, own = of(rows, "fast"), of(rows, "fast", 1), of(rows, "vllm")
    assert row["throughput_ratio"] == pytest.approx(30 / 20)
    assert row["inner_token_latency_ratio"] == pytest.approx(20 / 10)
    assert (own["throughput_ratio"], own["inner_token_latency_ratio"]) == (1.0, 1.0)
    assert alone["throughput_ratio"] is None, "speed is never compared across repeats"
    assert alone["inner_token_latency_ratio"] is None


def test_only_an_open_load_has_a_realised_rate(tmp_path: Path) -> None:
    """Three requests at 0, 100 and 500 ms: 4 a second, whatever was asked for."""
    at = (0.0, 100.0, 500.0)
    asked = [generation(f"r{t}", [t + 10, t + 20], scheduled_ms=t) for t in at]
    poisson = dataclasses.replace(REFERENCE, load=Load("poisson", rate=16.0))
    failed = dataclasses.replace(poisson, repeat=1)
    run = run_of(
        tmp_path,
        record(poisson, asked),
        record(REFERENCE, asked),
        record(failed, asked, status="timeout"),
    )
    found = {(r["load_kind"], r["repeat"]): r["realised_rate_per_s"] for r in summaries(run)}
    assert found == {("poisson", 0): 4.0, ("closed", 0): None, ("poisson", 1): None}
    assert of(cells(run), "vllm", load_kind="poisson")["realised_rate_per_s"] == 4.0
    frame = run.trials.set_index("key")["realised_rate_per_s"]
    assert frame[poisson.key("test")] == 4.0


def test_good_and_right(tmp_path: Path) -> None:
    """Four answers: right, equal to the reference, right but late, wrong."""
    slo = Slo(ttft_ms=20)
    names = ("right", "equal", "late", "wrong")
    reference = [answer(10, [1, 2], name) for name in names]
    ours = [generation(n, [90, 100] if n == "late" else [10, 20], ids=[1, 3]) for n in names]
    ours[1].token_ids = [1, 2]
    scores = {
        n: {"exact_match": float(n in ("right", "late")), "exact_match_flexible": 1.0}
        for n in names
    }
    run = run_of(
        tmp_path,
        record(dataclasses.replace(REFERENCE, slo=slo), reference),
        record(trial("fast", slo=slo), ours, scores=scores),
    )
    row = of(summaries(run), "fast")
    assert row["goodput_req_per_s"] == pytest.approx(3 / 0.1)
    assert row["good_and_right_per_s"] == pytest.approx(2 / 0.1)
    assert row["exact_match"] == 0.5
    assert row["exact_match_flexible"] == 1.0


def test_a_cell_pools_the_repeats_that_ended_well(tmp_path: Path) -> None:
    records = [
        record(trial("fast", repeat=i), [answer(step, [1, 2])])
        for i, step in enumerate((10, 60, 20))
    ]
    records.append(record(trial("fast", repeat=3), [], status="timeout", error="too slow"))
    (cell,) = cells(run_of(tmp_path, *records))
    assert cell["tpot_s_p50"] == pytest.approx(0.020)
    assert cell["spread"]["tpot_s_p50"] == pytest.approx([0.010, 0.060])
    assert (cell["repeats"], cell["statuses"]) == (3, {"ok": 3, "timeout": 1})
    assert not cell["valid"]
    assert sorted(cell["keys"]) == sorted(one.key for one in records)
    assert cell["speedup"] is None
    assert cell["spread"]["speedup"] is None


def test_a_run_without_reference_or_experiment_still_has_its_times(tmp_path: Path) -> None:
    results.Store(tmp_path).write(a_record())
    (row,) = summaries(results.load(tmp_path))
    assert row["ttft_s_p50"] == 0.010
    assert row["tokens_per_step"] is None
    assert row["acceptance_rate"] == 0.5
    assert (row["n_requests"], row["n_errors"], row["n_unfinished"]) == (3, 1, 1)
    assert row["speedup"] is None


def test_a_distribution_is_told_by_what_its_names_say() -> None:
    values = np.array([*np.arange(101.0), np.nan])[::-1]
    assert describe(values, "x") == {"x_p50": 50.0, "x_p95": 95.0, "x_p99": 99.0, "x_mean": 50.0}
    assert set(describe(np.array([np.nan]), "x").values()) == {None}


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.floats(0, 100))
def test_percentiles_are_numpys(values: list[float], share: float) -> None:
    expected = float(np.percentile(values, share))
    assert percentile(np.sort(values), share) == pytest.approx(expected, rel=1e-9, abs=1e-6)
