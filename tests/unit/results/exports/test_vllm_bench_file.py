"""Ours written as `vllm bench serve` would have, and read again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.errors import UserError
from harness.core.nouns import Generation, Load, Slo, TrialRecord
from results.exports.vllm_bench import as_file
from results.imports.files import read_foreign
from results.imports.foreign import make_record
from results.metrics import latency
from results.metrics.arrays import from_record
from results.metrics.other_tools import as_vllm_bench
from tests.support.results.make_trials import generation, record, trial

ROW = {"label": "mine", "valid": False, "invalid_reasons": ["failures: 1 of 4"]}
LENGTHS = {"a": 7, "b": 8, "c": 5, "d": 9}


def generations() -> list[Generation]:
    """Chunks of several tokens, a failure, one-token answers."""
    return [
        generation("a", [110, 130, 145], [1, 2, 2], scheduled_ms=100, submitted_ms=103),
        generation("b", [120], scheduled_ms=105),
        generation("c", [121], scheduled_ms=105, finished="error"),
        generation("d", [130, 140, 150], [1, 1, 1], scheduled_ms=110, submitted_ms=111),
    ]


def content(
    own: TrialRecord, lengths: Mapping[str, int] = LENGTHS, row: Mapping[str, Any] = ROW
) -> dict[str, Any]:
    """As the file holds it."""
    found = as_file(own, from_record(own), lengths, row)
    again: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))
    return again


def read_again(
    folder: Path, told: Mapping[str, Any], slo: Slo | None = None, *, cold: bool = True
) -> TrialRecord:
    path = folder / "bench.json"
    path.write_text(json.dumps(told))
    [load] = read_foreign(path)
    return make_record(load, "a", "w", 0, slo or Slo(), cold=cold)


def test_what_is_written_says_the_same_when_it_is_read(tmp_path: Path) -> None:
    slo = Slo(ttft_ms=15, tpot_ms=12)
    own = record(trial(slo=slo), generations())
    told = as_vllm_bench(from_record(own), slo)
    written_file = content(own)
    assert written_file["input_lens"] == [7, 8, 5, 9]
    assert written_file["mean_ttft_ms"] == told["mean_ttft_ms"]
    again = as_vllm_bench(from_record(read_again(tmp_path, written_file, slo)), slo)
    for name, value in told.items():
        if name != "duration" and "throughput" not in name and "goodput" not in name:
            assert again[name] == pytest.approx(value), name
    assert again["request_goodput"] * again["duration"] == pytest.approx(
        told["request_goodput"] * told["duration"]
    )


def test_prompts_count_where_their_lengths_are_known() -> None:
    """Those of the three that were answered, as there."""
    own = record(trial(), generations())
    found = content(own)
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (24, 9)
    assert type(found["total_input_tokens"]) is int
    assert found["total_token_throughput"] == pytest.approx(33 / 0.047)
    asked_again = [dataclasses.replace(generations()[0], request_id="a#2")]
    assert content(record(trial(), asked_again))["input_lens"] == [7]
    unknown = content(own, {"a": 7, "b": 8, "d": 9})
    assert (unknown["input_lens"], unknown["total_input_tokens"]) == (None, 24)
    nothing = content(own, {})
    assert nothing["input_lens"] is None
    assert (nothing["total_input_tokens"], nothing["total_token_throughput"]) == (None, None)


def test_without_an_objective_there_is_no_goodput() -> None:
    assert content(record(trial(), generations()))["request_goodput"] is None
    told = content(record(trial(slo=Slo(e2e_ms=20)), generations()))
    assert told["request_goodput"] == pytest.approx(1 / 0.047)


@pytest.mark.parametrize(
    "at_once",
    [[generation("a", [100], scheduled_ms=100)], [generation("a", [], finished="length")]],
    ids=["a single instant", "no token"],
)
def test_what_is_undefined_is_null(at_once: list[Generation]) -> None:
    told = content(record(trial(slo=Slo(ttft_ms=1)), at_once), {"a": 7})
    rates = ("request_throughput", "output_throughput", "total_token_throughput")
    assert {told[name] for name in ("duration", "request_goodput", *rates)} == {None}
    assert told["mean_tpot_ms"] == 0


def test_whose_file_it_is_stands_in_it() -> None:
    own = record(trial(load=Load("closed", concurrency=2), repeat=1), generations())
    assert content(own)["decodebench"] == {
        "key": own.key,
        "workload": own.trial.workload.name,
        "load": "closed c=2",
        "repeat": 1,
        "label": "mine",
        "valid": False,
        "validity": ["failures: 1 of 4"],
    }


@pytest.mark.parametrize(
    ("reason", "is_kept"),
    [
        ("machine-noisy: 49% of CPU time", True),
        ("client-late: p99 of stamp_lag_s 40 ms", True),
        ("not-lossless: 3 of 4 answers", True),
        ("too-few-samples: 4 answers, too few to say anything about p50, p95, p99", True),
        ("found-next-year: by a newer version", True),
        ("too-few-samples: 4 answers, too few to say anything about p95, p99", False),
        ("noise-not-checked: nobody looked", False),
        ("reference-not-valid: vllm, repeat 1, is not valid (machine-noisy)", False),
        ("cell-not-valid: speedup_low pool all repeats", False),
        ("cache-unknown: prefix_caching says what is meant", False),
    ],
)
def test_what_voids_a_trial_does_so_when_it_is_read_again(
    reason: str, is_kept: bool, tmp_path: Path
) -> None:
    own = record(trial(), [one for one in generations() if one.finished != "error"])
    told = content(own, row={**ROW, "invalid_reasons": [reason]})
    again = read_again(tmp_path, told).validity
    assert (again.valid, reason in again.reasons) == (not is_kept, is_kept)


def test_an_old_reason_is_not_told_beside_the_same_one_found_anew(tmp_path: Path) -> None:
    warm = "cache-not-cold: 30 of 33 prompt tokens"
    told = content(
        record(trial(), generations()), row={**ROW, "invalid_reasons": ["failures: 1 of 4", warm]}
    )
    found = read_again(tmp_path, told, cold=False).validity.reasons
    assert found[:2] == ("failures: 1 of 4 requests failed", warm)
    assert not any(reason.startswith("cache-unknown") for reason in found)
    for wrong in ("failures", [3]):
        with pytest.raises(UserError, match=r"json: decodebench\.validity: expected a list"):
            read_again(tmp_path, {**told, "decodebench": {"validity": wrong}})


@pytest.mark.parametrize("load", [Load("trace", trace="mine.jsonl"), Load("poisson", rate=2.0)])
def test_an_open_load_keeps_its_arrivals(load: Load, tmp_path: Path) -> None:
    own = record(trial(load=load), generations())
    told = content(own)
    assert told["queue_times"] == pytest.approx([0.003, 0, 0, 0.001])
    again = read_again(tmp_path, told)
    assert again.trial.load.kind == load.kind
    for of in (latency.ttft_s, latency.e2e_s, latency.submit_lag_s):
        before, after = of(from_record(own)), of(from_record(again))
        np.testing.assert_allclose(after, before, atol=1e-8, err_msg=of.__name__)


def test_a_closed_loop_stays_one(tmp_path: Path) -> None:
    told = content(record(trial(load=Load("closed", concurrency=2)), generations()))
    assert "queue_times" not in told
    assert read_again(tmp_path, told).trial.load == Load("closed", concurrency=2)
    assert "queue_times" in content(record(trial(load=Load("poisson", rate=2.0)), generations()))
