"""Rows and cells of stored runs: pairing, pooling, validity, and the names that never vary."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import results
from harness.core import Generation, Load, Slo, TrialRecord, Validity
from results.metrics import cells, summaries
from results.summary import percentile
from tests.unit.results.make import a_record, generation, record, trial

PERCENTILES = ("p50", "p95", "p99", "mean")
CONTRACT = {
    *("backend", "options", "provenance", "model", "workload", "source", "load", "repeat"),
    *("status", "valid", "invalid_reasons"),
    *(f"{n}_{p}" for n in ("ttft_s", "tpot_s", "itl_s", "e2e_s") for p in PERCENTILES),
    *(f"decode_tok_per_s_{p}" for p in PERCENTILES),
    *("inner_token_latency_s", "output_tok_per_s", "decode_tok_per_s"),
    *("goodput_req_per_s", "goodput_tok_per_s", "good_and_right_per_s"),
    *("consistency_ratio", "first_divergence", "noise_floor"),
    *("early_exit_rate", "early_prediction_rate", "rejection_rate"),
    *("tokens_per_step", "acceptance_rate", "full_passes_per_token"),
    *("speedup", "speedup_low", "speedup_high", "speedup_native", "consistency_native"),
    *("rouge_l_to_full", "rouge_l_to_label", "pass_at_1", "exact_match"),
    *("peak_memory_bytes", "energy_j"),
}
EXPERIMENT = {
    "name": "test",
    "reference": "vllm",
    "backends": [
        {"name": name, "options": options}
        for name, options in [
            ("vllm", {"block": 32}),
            ("vllm", {"block": 16}),
            ("fast", {}),
            ("autoregressive", {}),
        ]
    ],
}


def answer(step_ms: float, ids: Sequence[int], request: str = "r0") -> Generation:
    """First token after 10 ms, then one every `step_ms`."""
    return generation(request, [10 + step_ms * i for i in range(len(ids))], ids=ids)


def run_of(folder: Path, *records: TrialRecord, **experiment: Any) -> results.Run:
    store = results.Store(folder)
    store.write_experiment(yaml.safe_dump({**EXPERIMENT, **experiment}))
    for one in records:
        store.write(one)
    return results.load(folder)


def of(rows: list[dict[str, Any]], backend: str, repeat: int = 0, **more: Any) -> dict[str, Any]:
    wanted = {"backend": backend, "repeat": repeat, **more}
    (found,) = [row for row in rows if all(row.get(k, v) == v for k, v in wanted.items())]
    return found


REFERENCE = trial("vllm", options={"block": 32})


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


def test_speedup_pairs_the_same_request_in_the_same_repeat(tmp_path: Path) -> None:
    records = []
    for repeat, (slow, fast) in enumerate([(20, 10), (80, 10)]):
        for ran, step in ((REFERENCE, slow), (trial("fast"), fast)):
            generations = [answer(step * f, [1, 2, 3], f"r{f}") for f in (1, 2, 3)]
            records.append(record(dataclasses.replace(ran, repeat=repeat), generations))
    run = run_of(tmp_path, *records)
    rows = summaries(run)
    assert of(rows, "fast", 0)["speedup"] == pytest.approx(2.0)
    assert of(rows, "fast", 1)["speedup"] == pytest.approx(8.0)
    cell = of(cells(run), "fast")
    assert cell["speedup"] == pytest.approx(4.0)
    assert cell["repeats"] == 2
    assert 2.0 <= cell["speedup_low"] < 4.0 < cell["speedup_high"] <= 8.0 + 1e-4
    assert cell["speedup_requests"] == 3
    assert cell["spread"]["speedup"] == pytest.approx([2.0, 8.0])
    assert [of(rows, "fast", r)["speedup_low"] for r in (0, 1)] == [cell["speedup_low"]] * 2
    reference = of(rows, "vllm")
    assert (reference["speedup"], reference["speedup_low"]) == (1.0, None)
    assert (reference["is_reference"], cell["is_reference"]) == (True, False)


def test_another_repeat_serves_for_answers_but_not_for_speed(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        record(dataclasses.replace(REFERENCE, repeat=1), [answer(20, [1, 2, 3])]),
        record(trial("fast", repeat=0), [answer(10, [1, 2, 3])]),
    )
    row = of(summaries(run), "fast")
    assert row["consistency_ratio"] == 1.0
    assert (row["speedup"], row["speedup_low"], row["speedup_requests"]) == (None, None, None)


def test_the_reference_is_its_first_variant_and_the_other_is_measured_against_it(
    tmp_path: Path,
) -> None:
    other = trial("vllm", options={"block": 16})
    run = run_of(
        tmp_path, record(other, [answer(10, [1, 2])]), record(REFERENCE, [answer(30, [1, 2])])
    )
    rows = summaries(run)
    assert of(rows, "vllm", options={"block": 16})["speedup"] == pytest.approx(3.0)
    assert of(rows, "vllm", options={"block": 32})["speedup"] == 1.0
    assert [row["options"]["block"] for row in rows] == [32, 16]


def test_no_other_variant_stands_in_for_a_reference_that_failed(tmp_path: Path) -> None:
    """Else one cell's speed-ups would be against another system than the next cell's."""
    other = trial("vllm", options={"block": 16})
    for stored in ([], [record(REFERENCE, [], status="out_of_memory")]):
        run = run_of(
            tmp_path,
            *stored,
            record(other, [answer(10, [1, 2])]),
            record(trial("fast"), [answer(5, [1, 2])]),
        )
        row = of(summaries(run), "fast")
        assert (row["speedup"], row["consistency_ratio"]) == (None, None)
        assert not any(row["is_reference"] for row in summaries(run))


def test_native_numbers_are_against_autoregressive(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        record(REFERENCE, [answer(40, [1, 2])]),
        record(trial("autoregressive"), [answer(30, [7, 8])]),
        record(trial("fast"), [answer(10, [7, 8])]),
    )
    row = of(summaries(run), "fast")
    assert (row["speedup"], row["speedup_native"]) == pytest.approx((4.0, 3.0))
    assert (row["consistency_ratio"], row["consistency_native"]) == (0.0, 1.0)
    assert of(summaries(run), "autoregressive")["speedup_native"] == 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"load": Load("closed", concurrency=1)},
        {"seed": 1},
        {"requests": 3},
        {"max_new_tokens": 17},
        {"model": dataclasses.replace(REFERENCE.model, checksum="other")},
        {"workload": dataclasses.replace(REFERENCE.workload, checksum="other")},
    ],
)
def test_trials_that_differ_in_anything_else_are_not_compared(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    run = run_of(
        tmp_path,
        record(REFERENCE, [answer(20, [1, 2])]),
        record(trial("fast", **change), [answer(10, [1, 2])]),
    )
    row = of(summaries(run), "fast")
    assert (row["speedup"], row["consistency_ratio"], row["noise_floor"]) == (None, None, None)


def test_trials_of_two_machines_are_not_compared(tmp_path: Path) -> None:
    here = record(REFERENCE, [answer(20, [1, 2])])
    there = record(trial("fast"), [answer(10, [1, 2])])
    records = [
        dataclasses.replace(r, environment={"fingerprint": name})
        for r, name in ((here, "a"), (there, "b"))
    ]
    assert of(summaries(run_of(tmp_path, *records)), "fast")["speedup"] is None


def test_noise_floor_is_the_reference_against_its_other_repeats(tmp_path: Path) -> None:
    """Of two requests the second differs in repeat 1 only: pairs (0,1), (0,2), (1,2) agree in
    1 + 2 + 1 of 6 answers."""
    records = [
        record(
            dataclasses.replace(REFERENCE, repeat=repeat),
            [answer(10, [1, 2], "r0"), answer(10, [3, 9 if repeat == 1 else 4], "r1")],
        )
        for repeat in range(3)
    ]
    run = run_of(tmp_path, *records, record(trial("fast"), [answer(10, [1, 2], "r0")]))
    assert {row["noise_floor"] for row in summaries(run)} == {4 / 6}
    assert of(cells(run), "vllm")["noise_floor"] == 4 / 6


def test_divergence_margin_and_rouge(tmp_path: Path) -> None:
    told = {"top2_margin@1": 0.125}
    reference = [
        generation("a", [1, 2, 3], ids=[1, 2, 3], telemetry=told),
        generation("b", [1, 2, 3], ids=[4, 5, 6]),
    ]
    ours = [generation("a", [1, 2, 3], ids=[1, 9, 3]), generation("b", [1, 2, 3], ids=[4, 5, 7])]
    run = run_of(
        tmp_path,
        record(REFERENCE, reference, texts={"a": "the cat", "b": "same"}),
        record(trial("fast"), ours, texts={"a": "the dog", "b": "same"}),
    )
    row = of(summaries(run), "fast")
    assert row["consistency_ratio"] == 0.0
    assert row["consistency_requests"] == 2
    assert row["first_divergence"] == 1
    assert row["first_divergence_request"] == "a"
    assert row["first_divergence_margin"] == 0.125
    assert row["first_divergence_mean"] == 1.5
    assert row["rouge_l_to_full"] == 0.75
    reference_row = of(summaries(run), "vllm")
    assert (reference_row["consistency_ratio"], reference_row["first_divergence"]) == (1.0, None)
    assert reference_row["rouge_l_to_full"] == 1.0


def test_unequal_lengths_make_a_trial_invalid_also_in_its_cell(tmp_path: Path) -> None:
    records = [record(REFERENCE, [answer(10, [1, 2, 3])])]
    records += [record(trial("fast", repeat=r), [answer(10, [1, 2])]) for r in (0, 1)]
    run = run_of(tmp_path, *records)
    row, cell = of(summaries(run), "fast"), of(cells(run), "fast")
    assert not row["valid"]
    assert not cell["valid"]
    assert row["invalid_reasons"][0].startswith("length-mismatch: 1 of 1 outputs")
    assert len(cell["invalid_reasons"]) == 1
    assert of(summaries(run), "vllm")["valid"]


def test_a_reason_that_concerns_one_percentile_leaves_the_trial_valid(tmp_path: Path) -> None:
    few = Validity(True, ("too-few-samples: p99 of 64 requests is their maximum",))
    row = summaries(run_of(tmp_path, record(REFERENCE, [answer(10, [1, 2])], validity=few)))[0]
    assert row["valid"]
    assert row["invalid_reasons"] == list(few.reasons)


def test_good_and_right(tmp_path: Path) -> None:
    """Four answers: right, equal to the reference, right but late, wrong."""
    slo = Slo(ttft_ms=20)
    names = ("right", "equal", "late", "wrong")
    reference = [answer(10, [1, 2], name) for name in names]
    ours = [generation(n, [90, 100] if n == "late" else [10, 20], ids=[1, 3]) for n in names]
    ours[1].token_ids = [1, 2]
    scores = {n: {"exact_match": float(n in ("right", "late"))} for n in names}
    run = run_of(
        tmp_path,
        record(dataclasses.replace(REFERENCE, slo=slo), reference),
        record(trial("fast", slo=slo), ours, scores=scores),
    )
    row = of(summaries(run), "fast")
    assert row["goodput_req_per_s"] == pytest.approx(3 / 0.1)
    assert row["good_and_right_per_s"] == pytest.approx(2 / 0.1)
    assert row["exact_match"] == 0.5


def test_a_cell_pools_the_repeats_that_ended_well(tmp_path: Path) -> None:
    records = [
        record(trial("fast", repeat=i), [answer(step, [1, 2])])
        for i, step in enumerate((10, 30, 20))
    ]
    records.append(record(trial("fast", repeat=3), [], status="timeout", error="too slow"))
    (cell,) = cells(run_of(tmp_path, *records))
    assert cell["tpot_s_p50"] == pytest.approx(0.020)
    assert cell["spread"]["tpot_s_p50"] == pytest.approx([0.010, 0.030])
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


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.floats(0, 100))
def test_percentiles_are_numpys(values: list[float], share: float) -> None:
    expected = float(np.percentile(values, share))
    assert percentile(np.sort(values), share) == pytest.approx(expected, rel=1e-9, abs=1e-6)
