"""The verdict in words."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from reports.cells import Cell
from reports.verdict import first_reason


def cell(valid: bool, reasons: Mapping[str, tuple[int, str]]) -> Cell:
    """As much of a cell as the reason is drawn from."""
    return cast(Cell, cast(Any, SimpleNamespace(valid=valid, reasons=reasons)))


def test_a_remark_is_never_given_as_the_reason_while_there_is_a_real_one() -> None:
    """Too few samples for p99 stands with every trial of a small run, so it is the most frequent;
    the page once said that trials were not valid because of it, when the machine was noisy."""
    noisy = cell(
        False,
        {
            "too-few-samples": (3, "too-few-samples: 12 answers say nothing about p99"),
            "machine-noisy": (1, "machine-noisy: other processes used 48% of CPU time"),
        },
    )
    assert first_reason([noisy]) == "other processes used 48% of CPU time"


def test_remarks_of_valid_cells_are_no_reason_at_all() -> None:
    fine = cell(True, {"too-few-samples": (3, "too-few-samples: 12 answers")})
    assert first_reason([fine]) == ""


def test_too_few_samples_is_the_reason_when_it_is_the_only_one() -> None:
    tiny = cell(False, {"too-few-samples": (1, "too-few-samples: 3 answers")})
    assert first_reason([tiny]) == "3 answers"
