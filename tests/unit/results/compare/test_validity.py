"""What a trial's answers say about whether its numbers may be believed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.core.nouns import TrialRecord, Validity
from results.rows import cells, summaries
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import REFERENCE, answer, of, run_of

NATIVE = {"kernels": "native"}


ANSWERS = {"r0": (1, 2, 3), "r1": (4, 5, 6), "r2": (7, 8, 9)}


def asked(backend: str, repeat: int = 0, **more: Any) -> TrialRecord:
    """A trial whose answers are `ANSWERS`, but for those in `changed`."""
    answers: dict[str, Sequence[int]] = {**ANSWERS, **more.pop("changed", {})}
    options = more.pop("options", NATIVE)
    return record(
        trial(backend, options=options, repeat=repeat, requests=len(answers)),
        [
            generation(name, [5 * (i + 1) for i in range(len(a))], ids=a)
            for name, a in answers.items()
        ],
        **more,
    )


def verdict(folder: Path, *records: TrialRecord, backend: str = "fast", repeat: int = 0) -> Any:
    row = of(summaries(run_of(folder, *records)), backend, repeat)
    return row["valid"], row["invalid_reasons"]


def test_a_broken_promise_of_plain_text_is_named_with_its_first_place(tmp_path: Path) -> None:
    ours = asked("fast", changed={"r1": (4, 5, 0), "r2": (7, 0, 9)})
    reason = "not-lossless: 2 of 3 requests differ from autoregressive, first at request r1 token 2"
    assert verdict(tmp_path, ours, asked("autoregressive")) == (False, [reason])


def test_a_kept_promise_says_nothing(tmp_path: Path) -> None:
    assert verdict(tmp_path, asked("fast"), asked("autoregressive")) == (True, [])


@pytest.mark.parametrize(
    "who",
    [
        {"lossless": False},
        {"options": {}},
        {"options": {"kernels": "torch"}},
        {"options": {"kernels": "native", "threads": 2}},
        {"repeat": 1},
    ],
    ids=["lossy", "vLLM's kernels", "other kernels", "other threads", "other repeat"],
)
def test_nobody_is_held_to_a_promise_not_given(tmp_path: Path, who: dict[str, Any]) -> None:
    ours = asked("fast", changed={"r1": (4, 5, 0)}, **who)
    found = verdict(tmp_path, ours, asked("autoregressive"), repeat=who.get("repeat", 0))
    assert found == (True, [])


def test_plain_decoding_of_other_kernels_does_not_hide_that_of_the_same(tmp_path: Path) -> None:
    """The run's native baseline is the first variant; the promise concerns the one that fits."""
    torch = asked("autoregressive", options={"kernels": "torch"}, changed={"r1": (4, 5, 0)})
    ours = asked("fast", changed={"r1": (4, 5, 0)})
    valid, reasons = verdict(tmp_path, torch, asked("autoregressive"), ours)
    assert not valid
    assert reasons[0].startswith("not-lossless: 1 of 3 requests")


def test_each_repeat_has_its_own_verdict_and_the_cell_the_worst(tmp_path: Path) -> None:
    records = [asked("autoregressive", repeat) for repeat in (0, 1)]
    records += [asked("fast", 0), asked("fast", 1, changed={"r0": (1, 2)})]
    run = run_of(tmp_path, *records)
    assert of(summaries(run), "fast", 0)["valid"]
    assert not of(summaries(run), "fast", 1)["valid"]
    (cell,) = [cell for cell in cells(run) if cell["backend"] == "fast"]
    assert not cell["valid"]
    assert cell["invalid_reasons"] == [
        "not-lossless: 1 of 3 requests differ from autoregressive, first at request r0 token 2"
    ]


def test_requests_that_failed_break_no_promise(tmp_path: Path) -> None:
    plain = asked("autoregressive")
    broken = [generation("r0", [1], ids=[9], finished="error")]
    ours = record(trial("fast", options=NATIVE, requests=3), broken)
    assert verdict(tmp_path, ours, plain) == (True, [])


def test_unequal_lengths_void_what_compares_unequal_work_alone(tmp_path: Path) -> None:
    records = [record(REFERENCE, [answer(10, [1, 2, 3])])]
    records += [record(trial("fast", repeat=r), [answer(10, [1, 2])]) for r in (0, 1)]
    run = run_of(tmp_path, *records)
    row, cell = of(summaries(run), "fast"), of(cells(run), "fast")
    for one in (row, cell):
        assert one["valid"]
        assert {"throughput_ratio", "e2e_s_p50", "goodput_req_per_s"} <= set(one["void_metrics"])
        assert not {"speedup", "tpot_s_p50", "ttft_s_p50", "output_tok_per_s"} & set(
            one["void_metrics"]
        )
    assert row["invalid_reasons"][0].startswith("length-mismatch: 1 of 1 answers")
    assert "33% shorter" in row["invalid_reasons"][0]
    assert len(cell["invalid_reasons"]) == 1
    assert row["length_ratio"] == 2 / 3
    assert of(summaries(run), "vllm")["valid"]


def test_a_reason_that_concerns_one_percentile_leaves_the_trial_valid(tmp_path: Path) -> None:
    few = Validity(True, ("too-few-samples: p99 of 64 requests is their maximum",))
    row = summaries(run_of(tmp_path, record(REFERENCE, [answer(10, [1, 2])], validity=few)))[0]
    assert row["valid"]
    assert row["invalid_reasons"] == list(few.reasons)
