"""A dash in the table of results says the true reason."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from harness.core.nouns import Slo
from reports.cells import Cell
from reports.sections.results import _why_undefined
from reports.variants import NamedOptions, variants

VLLM, FAST = variants(
    [
        NamedOptions("vllm", {}, "official code", True),
        NamedOptions("fast", {}, "re-implementation", False),
    ]
)


def cell(*, reference: bool = False, replay: bool = False, **metrics: Any) -> Cell:
    variant = dataclasses.replace(VLLM if reference else FAST, is_replay=replay)
    return Cell(
        variant=variant, workload="gsm8k", load="closed c=1", load_kind="closed", load_value=1,
        order=0, metrics={"n_completed": 4, "repeats": 3, "spread": {}, **metrics}, keys=(),
        slo=Slo(), trials=3, failed=0, valid_trials=3,
    )  # fmt: skip


REPLAYED = "decisions were replayed: answers are chance"
BY_ONE_COMMIT = "no two answers have times between tokens"


@pytest.mark.parametrize(
    ("found", "metric", "told"),
    [
        (cell(replay=True, speedup=2.0), "consistency_ratio", REPLAYED),
        (cell(replay=True, reference=True), "consistency_ratio", REPLAYED),
        (cell(consistency_requests=4), "speedup", BY_ONE_COMMIT),
        (cell(replay=True), "speedup", "no answer has times between tokens"),
        (cell(tpot_s_mean=0.1), "speedup", "no request in common with the reference"),
        (cell(), "consistency_ratio", "no request in common with the reference"),
        (cell(speedup=2.0), "consistency_ratio", "the token ids of the answers are not known"),
        (
            dataclasses.replace(cell(reference=True), trials=3, failed=2),
            "consistency_ratio",
            "one repeat only, so the reference cannot be compared with itself",
        ),
        (
            cell(reference=True),
            "consistency_ratio",
            "no two repeats have answers that can be compared",
        ),
        (cell(), "goodput_req_per_s", "no objective (slo) was set"),
        (
            dataclasses.replace(cell(), slo=Slo(ttft_ms=5)),
            "goodput_req_per_s",
            "undefined: no request finished",
        ),
        (dataclasses.replace(cell(), failed=3), "speedup", "every trial of this cell failed"),
    ],
)
def test_the_reason_is_the_true_one(found: Cell, metric: str, told: str) -> None:
    assert _why_undefined(found, metric, "") == told


def test_without_a_reference_that_is_the_reason() -> None:
    assert _why_undefined(cell(), "speedup", "the reference failed") == "the reference failed"
