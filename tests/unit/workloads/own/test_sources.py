"""The workload `jsonl`: which files are read, what in them is nothing, which ids rows may have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.nouns import Load, Workload
from workloads import arrivals, datasets


def write(path: Path, rows: list[Any]) -> str:
    lines = [one if isinstance(one, str) else json.dumps(one) for one in rows]
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def loaded(folder: Path, rows: list[Any]) -> list[datasets.Row]:
    source = write(folder / "rows.jsonl", rows)
    return datasets.load_rows(Workload("jsonl", source), 0, len(rows))


def test_every_file_of_a_folder_is_read(tmp_path: Path) -> None:
    """Also those whose names hold no split's name beside one that does: the user has no splits."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.md").write_text("no prompts")
    with pytest.raises(UserError, match=r"mine: no data file in this folder; expected \.jsonl"):
        datasets.load_rows(Workload("jsonl", str(folder)), 0, 1)
    for name in ("b.jsonl", "test.jsonl", "a train set.jsonl"):
        write(folder / name, [{"id": f"{name} {i}", "prompt": "x"} for i in range(2)])
    (folder / "c.csv").write_text("id,prompt\nc.csv 0,x\n")
    found = datasets.load_rows(Workload("jsonl", str(folder), rows=7), 0, 7)
    names = ("a train set.jsonl", "b.jsonl", "test.jsonl")
    assert sorted(row.id for row in found) == [
        *(f"{name} {i}" for name in names[:2] for i in range(2)),
        "c.csv 0",
        *(f"test.jsonl {i}" for i in range(2)),
    ]
    write(folder / "a.jsonl", [{"id": "c.csv 0", "prompt": "y"}])
    with pytest.raises(UserError, match=r"c\.csv, line 2: .* stands twice: .*a\.jsonl, line 1"):
        datasets.load_rows(Workload("jsonl", str(folder)), 0, 1)


def test_empty_cells_are_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "id,prompt,messages,answer,scorer\n"
        "1,first,,yes,exact\n"
        "2,second,,,\n"
        '3,third,"", ,none\n'
        ",fourth\n"
    )
    found = datasets.load_rows(Workload("jsonl", str(path)), 0, 4)
    rows = {row.data["prompt"]: row.data for row in found}
    assert rows["first"]["answer"] == "yes"
    assert all("answer" not in rows[name] for name in ("second", "third", "fourth"))
    assert [rows[name]["scorer"] for name in rows if name != "first"] == ["none"] * 3
    assert len(rows["fourth"]["id"]) == 16, "named by its content"
    path.write_text("id,prompt,answer\n1,first,yes\n2,second,\n")
    with pytest.raises(UserError, match=r"line 3: field 'answer' is missing; .* needs it$"):
        datasets.load_rows(Workload("jsonl", str(path), options={"scorer": "exact"}), 0, 2)
    path.write_text("id,prompt\n2,\n")
    with pytest.raises(UserError, match="line 2: field 'prompt': expected text, got nothing"):
        datasets.load_rows(Workload("jsonl", str(path)), 0, 2)


def test_what_data_frames_have_for_nothing_is_nothing(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    nothing = pa.array([1.0, float("nan")], pa.float64())
    table = pa.table({"prompt": ["a", "b"], "answer": nothing, "id": ["x", None]})
    parquet.write_table(table, tmp_path / "a.parquet")
    rows = datasets.load_rows(Workload("jsonl", str(tmp_path / "a.parquet")), 0, 2)
    assert {row.data["prompt"]: row.data.get("answer") for row in rows} == {"a": "1.0", "b": None}
    found = loaded(tmp_path, ['{"prompt": "a", "id": NaN, "answer": NaN, "scorer": NaN}'])
    assert "answer" not in found[0].data


TAKEN: dict[str, list[str]] = {
    "later": ["a", "b", "a#2"],
    "earlier": ["a#2", "a"],
    "any turn": ["a", "a#17"],
    "of a turn": ["a#b", "a#b#2"],
}


@pytest.mark.parametrize("ids", TAKEN.values(), ids=TAKEN)
def test_an_id_that_a_repeat_would_take_is_one_line(tmp_path: Path, ids: list[str]) -> None:
    """It would be scored against the other row's answer, and asked again under the same id."""
    with pytest.raises(UserError) as raised:
        loaded(tmp_path, [{"id": name, "prompt": f"p {name}"} for name in ids])
    (name,) = (name for name in ids if name[-1].isdecimal())
    row = name.rpartition("#")[0]
    assert f"line {ids.index(name) + 1}: field 'id': '{name}' is what a repeat" in str(raised.value)
    assert f"of '{row}' is called (" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_ids_with_a_number_sign_are_ids(tmp_path: Path) -> None:
    names = ["issue#2", "issue#3", "a#b", "#1", "a"]
    found = loaded(tmp_path, [{"id": name, "prompt": "x"} for name in names])
    assert sorted(row.id for row in found) == sorted(names)


def test_a_relative_path_that_is_not_there_is_told_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    looked = rf"does not exist.* \(looked for {tmp_path / 'data' / 'a.jsonl'}\)$"
    for name in ("jsonl", "sharegpt", "gsm8k"):
        with pytest.raises(UserError, match=looked):
            datasets.load_rows(Workload(name, "data/a.jsonl"), 0, 1)
    with pytest.raises(UserError, match=looked):
        arrivals.arrival_times(Load("trace", trace="data/a.jsonl"), 1, 0)
    with pytest.raises(UserError, match=r"does not exist$"):
        datasets.load_rows(Workload("jsonl", str(tmp_path / "a.jsonl")), 0, 1)
