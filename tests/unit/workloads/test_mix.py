"""Easy and hard rows: what lies at the median is easy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.core.nouns import Workload
from workloads import datasets
from workloads.datasets import Row, load_rows
from workloads.hardness import difficulty


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


def mixed(path: str, mix: str, count: int, rows: int | None = None) -> list[Row]:
    return load_rows(Workload("gsm8k", path, rows, {"mix": mix}), 0, count)


@pytest.mark.parametrize(("mix", "easy"), [("80:20", 32), ("50:50", 20), ("20:80", 8), ("4:1", 32)])
def test_mix_has_its_ratio_and_is_shuffled(tmp_path: Path, mix: str, easy: int) -> None:
    rows = mixed(source(tmp_path, [1 + n % 4 for n in range(100)]), mix, 40)
    is_easy = [row.difficulty <= 2 for row in rows]
    assert sum(is_easy) == easy
    assert is_easy != sorted(is_easy)
    assert is_easy != sorted(is_easy, reverse=True)


def test_mix_keeps_its_ratio_when_one_side_runs_short(tmp_path: Path) -> None:
    path = source(tmp_path, [1 + n % 2 for n in range(20)])
    rows = mixed(path, "80:20", 96)
    assert len({row.id for row in rows}) == 13
    assert sum(row.difficulty <= 1 for row in rows) == pytest.approx(96 * 10 / 13, abs=1)
    with pytest.raises(UserError, match="96 distinct rows asked for, but only 13"):
        mixed(path, "80:20", 96, rows=96)


def test_mix_without_any_spread_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no row is harder than the median, 1"):
        mixed(source(tmp_path, [1] * 20), "50:50", 10)


def test_how_hard_rows_are_is_found_out_for_a_mix_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counted(name: str, data: Mapping[str, str]) -> float:
        asked.append(name)
        return difficulty(name, data)

    monkeypatch.setattr(datasets, "difficulty", counted)
    path = source(tmp_path, [1, 2, 3, 4])
    assert {row.difficulty for row in load_rows(Workload("gsm8k", path), 0, 4)} == {0.0}
    assert asked == []
    assert {row.difficulty for row in mixed(path, "50:50", 4)} == {1.0, 2.0, 3.0, 4.0}
    assert asked == ["gsm8k"] * 4
