"""Which requests and trials belong together."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

import results
from harness.core.nouns import Load
from results.compare.pairing import data_rows
from results.rows import cells, summaries
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import REFERENCE, answer, of, run_of


def test_a_row_that_is_asked_again_is_found_by_its_id() -> None:
    rows = data_rows(["g-0", "g-1", "g-0#2", "g-1#2", "g-0#3"])
    assert rows is not None
    assert rows.tolist() == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    "ids", [[], ["a", "b"], ["issue#1", "issue#2"], ["a", "a#b"], ["a#", "#2"]]
)
def test_ids_of_rows_that_hold_the_sign_themselves_are_rows_of_their_own(ids: list[str]) -> None:
    assert data_rows(ids) is None


def test_a_cell_of_one_row_asked_often_claims_no_interval(tmp_path: Path) -> None:
    """Eight pairs of eight rows have one; eight pairs of one row are a single piece of evidence."""
    bounds = []
    for names in ([f"r{n}" for n in range(8)], ["r", *(f"r#{n}" for n in range(2, 9))]):
        store = results.Store(tmp_path / names[0])
        store.write_experiment(yaml.safe_dump({"name": "t", "reference": "vllm"}))
        for backend, step in (("vllm", 20.0), ("fast", 10.0)):
            generations = [generation(name, [0, step + place]) for place, name in enumerate(names)]
            store.write(record(trial(backend), generations))
        (cell,) = [c for c in cells(results.load(store.path)) if c["backend"] == "fast"]
        assert cell["speedup"] == pytest.approx(1.758, abs=0.001)
        bounds.append(cell["speedup_low"])
    assert bounds[0] is not None
    assert bounds[1] is None


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
    assert 0 < cell["speedup_low"] < 1.0, "two repeats that differ by 4 leave the side open"
    assert cell["speedup_low"] * cell["speedup_high"] == pytest.approx(16.0)
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


def test_the_earliest_divergence_is_not_that_of_the_first_request(tmp_path: Path) -> None:
    reference = [answer(10, [1, 2, 3], name) for name in ("a", "b", "c")]
    ours = [answer(10, ids, name) for name, ids in (("a", [1, 2, 9]), ("b", [1, 9, 3]))]
    run = run_of(
        tmp_path,
        record(REFERENCE, reference),
        record(trial("fast"), [*ours, answer(10, [1, 2, 3], "c")]),
    )
    row = of(summaries(run), "fast")
    assert (row["first_divergence"], row["first_divergence_request"]) == (1, "b")
    assert row["first_divergence_p50"] == 1.5


def test_answers_are_compared_with_the_first_repeat_where_their_own_is_missing(
    tmp_path: Path,
) -> None:
    reference = [
        record(dataclasses.replace(REFERENCE, repeat=repeat), [answer(10, [1, token])])
        for repeat, token in ((1, 2), (3, 9))
    ]
    run = run_of(tmp_path, *reference, record(trial("fast", repeat=2), [answer(10, [1, 2])]))
    assert of(summaries(run), "fast", 2)["consistency_ratio"] == 1.0


def test_of_a_doubled_repeat_of_the_reference_the_later_one_counts(tmp_path: Path) -> None:
    """An older code's trial may stand beside today's, under another key."""
    old = record(REFERENCE, [answer(40, [1, 2])], started_at="2026-01-01T00:00:00+00:00")
    new = record(REFERENCE, [answer(20, [1, 2])], started_at="2026-01-01T01:00:00+00:00")
    for names in (("0", "1"), ("1", "0")):
        both = [dataclasses.replace(r, key=k) for r, k in zip((old, new), names, strict=True)]
        run = run_of(tmp_path / names[0], *both, record(trial("fast"), [answer(10, [1, 2])]))
        assert of(summaries(run), "fast")["speedup"] == pytest.approx(2.0)


def test_repeats_that_list_their_requests_in_another_order_are_pooled_by_id(tmp_path: Path) -> None:
    """The interval is that of the same answers in the same order."""
    found = []
    for turn in (1, -1):
        records = []
        for repeat, names in ((0, "abcdef"), (1, "abcdef"[::turn])):
            for ran, factors in ((REFERENCE, range(2, 8)), (trial("fast"), (1,) * 6)):
                steps = dict(zip("abcdef", factors, strict=True))
                generations = [answer(10 * steps[name], [1, 2], name) for name in names]
                records.append(record(dataclasses.replace(ran, repeat=repeat), generations))
        cell = of(cells(run_of(tmp_path / str(turn), *records)), "fast")
        found.append((cell["speedup"], cell["speedup_low"], cell["speedup_high"]))
    assert found[0] == pytest.approx(found[1])
