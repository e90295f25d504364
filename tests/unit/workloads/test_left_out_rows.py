"""Rows of data sets that cannot be asked: left out, and told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.nouns import Workload
from workloads.datasets import load_rows
from workloads.readers import Budget


def _write(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return str(path)


EMPTY = {"null": None, "empty": "", "blank": " \n", "empty list": [], "blank list": [" ", ""]}


@pytest.mark.parametrize("nothing", EMPTY.values(), ids=EMPTY.keys())
def test_rows_with_nothing_in_a_field_are_left_out_and_counted(
    tmp_path: Path, nothing: object
) -> None:
    rows = [{"document": f"d{n}", "summary": "s", "id": n} for n in range(4)]
    source = _write(tmp_path / "a.jsonl", [rows[0], rows[1] | {"document": nothing}, *rows[2:]])
    budget = Budget()
    found = load_rows(Workload("xsum", source), 0, 9, budget=budget)
    assert {row.id for row in found} == {"0", "2", "3"}
    (remark,) = budget.remarks
    begin = f"workload xsum: 1 of 4 rows left out; first: {source}, line 2: field 'document': "
    assert remark.startswith(f"{begin}expected text, got ")
    _write(tmp_path / "a.jsonl", [row | {"summary": nothing} for row in rows])
    with pytest.raises(UserError, match="no row can be asked: 4 of 4 rows left out; first: "):
        load_rows(Workload("xsum", source), 0, 1)


def test_labels_that_are_nothing_are_left_out_and_wrong_ones_refused(tmp_path: Path) -> None:
    rows = [{"sentence": "Good.", "label": label} for label in ("", None, 1)]
    budget = Budget()
    source = _write(tmp_path / "a.jsonl", list(rows))
    (found,) = load_rows(Workload("sentiment", source), 0, 1, budget=budget)
    assert found.data["label"] == "positive"
    assert "2 of 3 rows left out" in budget.remarks[0]
    _write(tmp_path / "a.jsonl", [*rows, {"sentence": "Good.", "label": -1}])
    with pytest.raises(UserError, match="line 4: field 'label': -1 is no label"):
        load_rows(Workload("sentiment", source), 0, 1)


def test_other_rows_with_an_id_that_was_seen_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [{"article": f"a {n % 10}", "highlights": "h", "id": "same"} for n in range(20)]
    source, budget = _write(tmp_path / "a.jsonl", list(rows)), Budget()
    assert len({row.id for row in load_rows(Workload("cnn_dailymail", source), 0, 4)}) == 1
    load_rows(Workload("cnn_dailymail", source), 0, 4, budget=budget)
    why = f"{source}, line 2: the id 'same' is another row's"
    assert budget.remarks == [f"workload cnn_dailymail: 18 of 20 rows left out; first: {why}"]
