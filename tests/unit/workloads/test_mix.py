"""Easy and hard rows: what lies at the median is easy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.core.nouns import Workload
from workloads.datasets import load_rows


def source(folder: Path, steps: list[int]) -> str:
    path = folder / "rows.jsonl"
    rows = []
    for number, count in enumerate(steps):
        worked = "\n".join(f"{i} + 1 = <<{i}+1={i + 1}>>{i + 1}" for i in range(count))
        rows.append({"question": f"Problem {number}?", "answer": f"{worked}\n#### {count}"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def drawn(folder: Path, steps: list[int], mix: str, count: int) -> list[float]:
    workload = Workload("gsm8k", source(folder, steps), count, {"mix": mix})
    return sorted(row.difficulty for row in load_rows(workload, 0, count))


def test_rows_at_the_median_are_easy(tmp_path: Path) -> None:
    """Steps 1, 2, 2, 2, 3: the median is 2, so four are easy and one is hard."""
    assert drawn(tmp_path, [1, 2, 2, 2, 3], "100:0", 4) == [1, 2, 2, 2]
    assert drawn(tmp_path, [1, 2, 2, 2, 3], "0:100", 1) == [3]
    assert drawn(tmp_path, [1, 2, 2, 2, 3], "80:20", 5) == [1, 2, 2, 2, 3]


def test_parts_are_rounded_to_the_nearest(tmp_path: Path) -> None:
    """80:20 of two rows is 1.6 easy ones."""
    assert drawn(tmp_path, [1, 1, 2, 2], "80:20", 2) == [1, 1]


def test_rows_at_the_median_are_not_hard(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="2 distinct rows asked for, but only 1"):
        drawn(tmp_path, [1, 2, 2, 2, 3], "0:100", 2)
