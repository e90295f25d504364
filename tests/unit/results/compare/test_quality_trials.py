"""Prompts that were asked for their answers alone: pooled into quality, and into nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import results
from harness.cli.quality.told import quality_tables
from harness.core.nouns import Load, Model, Sampling, TrialRecord, Workload
from results.compare.gate.extraction import reduce_run
from results.compare.judged import PooledQuality, pooled_quality
from results.compare.quality import only_quality, quality_keys, without_quality
from results.rows import cells, summaries
from tests.support.results.make_trials import record, trial
from tests.support.results.stored_runs import answer, run_of

SCORE = "exact_match"


def scored(backend: str, load: Load, ids: Sequence[str], right: int, **more: Any) -> TrialRecord:
    """Answers to these requests, the first of them right."""
    rows = None if load.kind == "closed" else 6
    workload = Workload("gsm8k", checksum=f"{load.kind}", rows=rows)
    own = trial(backend, workload=workload, load=load, requests=len(ids), **more)
    generations = [answer(1.0 if backend == "vllm" else 0.5, [1, 2, 3], name) for name in ids]
    scores = {name: {SCORE: float(n < right)} for n, name in enumerate(ids)}
    return record(own, generations, texts=dict.fromkeys(ids, "x"), scores=scores, lossless=False)


@pytest.fixture
def run(tmp_path: Path) -> results.Run:
    alone, many = Load("quality", concurrency=1), Load("quality", concurrency=8)
    closed, few, more = Load("closed", concurrency=2), ["a", "b"], ["c", "d", "e", "f"]
    options = {"block": 32}
    return run_of(
        tmp_path,
        scored("vllm", closed, few, 2, options=options),
        scored("fast", closed, few, 1),
        scored("vllm", many, more, 4, options=options),
        scored("fast", alone, more, 1),
        experiment_repeats=1,
    )


def test_all_answers_of_an_engine_are_one(run: results.Run) -> None:
    found: dict[str, PooledQuality] = {
        one.trial.backend: one for one in pooled_quality(run, ["pass_at_1", SCORE])
    }
    assert found["vllm"].pair is None
    assert (found["vllm"].prompts, found["vllm"].mean) == (6, 1.0)
    pair = found["fast"].pair
    assert pair is not None
    assert (pair.prompts, pair.reference) == (6, 1.0)
    assert pair.own == pytest.approx(2 / 6)
    assert pair.judgement == "worse"


SHORT: dict[str, Any] = {"max_new_tokens": 4}
LONG: dict[str, Any] = {"max_new_tokens": 40}
IDS = "abcdefgh"


def of_settings(folder: Path, *records: TrialRecord) -> list[PooledQuality]:
    found = run_of(folder, *records, backends=[{"name": "vllm"}, {"name": "fast"}])
    return list(pooled_quality(found, [SCORE]))


@pytest.mark.parametrize(
    "other",
    [
        SHORT,
        {**LONG, "seed": 1},
        {**LONG, "sampling": Sampling(temperature=1.0)},
        {**LONG, "ignore_eos": True},
        {**LONG, "model": Model("demo", dtype="bfloat16")},
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_each_setting_is_judged_beside_its_own_reference(
    tmp_path: Path, other: dict[str, Any], turned: bool
) -> None:
    """Wrong answers of a shorter length beside the right ones made a lossy method as good."""
    one, eight = Load("closed", concurrency=1), Load("closed", concurrency=8)
    records = [
        scored("vllm", one, IDS, 0, **other),
        scored("vllm", eight, IDS, 8, **LONG),
        scored("fast", eight, IDS, 4, **LONG),
    ]
    found = of_settings(tmp_path, *records[:: -1 if turned else 1])
    assert sorted((q.trial.backend, q.mean) for q in found) == [
        ("fast", 0.5),
        ("vllm", 0.0),
        ("vllm", 1.0),
    ]
    (pair,) = [q.pair for q in found if q.pair is not None]
    assert (pair.reference, pair.own) == (1.0, 0.5)
    assert len({str(q.setting) for q in found}) == 2


def test_another_machine_s_reference_is_none(tmp_path: Path) -> None:
    load = Load("closed", concurrency=8)
    found = of_settings(
        tmp_path,
        scored("vllm", load, IDS, 8),
        replace(scored("fast", load, IDS, 8), environment={"fingerprint": "beef"}),
    )
    assert [(q.trial.backend, q.pair) for q in found] == [("vllm", None), ("fast", None)]


def test_show_has_a_table_for_each_setting(tmp_path: Path) -> None:
    load, more = Load("closed", concurrency=8), Load("quality", concurrency=8)
    run = run_of(
        tmp_path,
        scored("vllm", load, IDS, 8, **SHORT),
        *(scored(name, load, IDS, 8, **LONG) for name in ("vllm", "fast")),
        *(scored(name, more, ["q"], 1, **LONG) for name in ("vllm", "fast")),
    )
    tables = quality_tables(run, cells(run))
    titles = [table.title.partition(", demo (bundled prompts), ")[2] for table in tables]
    assert sorted(titles) == ["max_new_tokens=4", "max_new_tokens=40"]
    assert sorted(len(table.rows) for table in tables) == [1, 2]


@pytest.mark.parametrize(
    ("right", "told"),
    [
        (0, "nothing to lose: the reference scores 0"),
        (8, "too few; at least 149 are needed"),
    ],
)
def test_show_says_why_scores_judge_nothing(tmp_path: Path, right: int, told: str) -> None:
    load, more = Load("closed", concurrency=8), Load("quality", concurrency=8)
    names = ("vllm", "fast")
    run = run_of(
        tmp_path,
        *(scored(name, load, IDS, right) for name in names),
        *(scored(name, more, ["q"], min(right, 1)) for name in names),
        backends=[{"name": name} for name in names],
    )
    (table,) = quality_tables(run, cells(run))
    assert [row[-1] for row in table.rows][1:] == [told]


def test_what_is_in_flight_parts_no_answers_and_nothing_is_a_time(run: results.Run) -> None:
    rows = [row for row in summaries(run) if row["load_kind"] == "quality"]
    assert [row["backend"] for row in rows] == ["vllm", "fast"]
    assert rows[1]["consistency_ratio"] == 1.0, "compared with the reference's, which had 8"
    timed = [row for row in summaries(run) if row["load_kind"] == "closed"]
    names = ("speedup", "speedup_low", "tpot_s_p50", "ttft_s_mean", "output_tok_per_s", "setup_s")
    for name in names[:-1]:
        assert all(row[name] is None for row in rows), name
    assert timed[1]["speedup"] == pytest.approx(2.0)
    kinds = {cell["load_kind"]: cell["speedup"] for cell in cells(run) if cell["backend"] == "fast"}
    assert kinds["quality"] is None


def test_they_can_be_looked_at_apart_and_enter_no_gate(run: results.Run) -> None:
    assert len(quality_keys(run)) == 2
    assert {s.record.trial.load.kind for s in without_quality(run).stored} == {"closed"}
    assert {s.record.trial.load.kind for s in only_quality(run).stored} == {"quality"}
    reduced = reduce_run(run, ["tpot_s_p50"])
    assert {one.cell.load for one in reduced.trials} == {"closed c=2"}
