"""SPEED-Bench's rows from files, from the hub and bundled: categories, first turns, refusals."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from harness.core.errors import UserError
from harness.core.nouns import Workload
from workloads import UNSCORED, WORKLOADS, measurable, scoring
from workloads.datasets import load_rows, row_options
from workloads.prompts import instruction, plain_text
from workloads.speed_bench import NOTICE, QUALITATIVE_CATEGORIES, STAND_INS, SUBSETS

NOT_THERE = f"{NOTICE} FROM THE SOURCE USING SPECDEC_BENCH"


def row(number: int, category: str = "qa", **fields: Any) -> dict[str, Any]:
    """A row as the hub has it."""
    turns = [f"Question {number}?", "And then?"]
    return {"question_id": f"q{number}", "category": category, "turns": turns} | fields


def chat(number: int, category: str = "qa", role: str = "user") -> dict[str, Any]:
    """A row as the preparing script writes it."""
    messages = [{"role": role, "content": f"Question {number}?"}, {"role": "user", "content": "?"}]
    return {"question_id": f"q{number}", "category": category, "messages": messages}


def write(path: Path, rows: list[Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return str(path)


def loaded(source: str, count: int = 1, **options: Any) -> list[tuple[str, str, str]]:
    """Id, category and prompt, in the order of the ids."""
    rows = load_rows(Workload("speed_bench", source, options=options), 0, count)
    return sorted((one.id, one.data["category"], one.data["prompt"]) for one in rows)


@pytest.mark.parametrize("make", [row, chat])
def test_the_first_turn_is_asked_as_it_stands(tmp_path: Path, make: Any) -> None:
    source = write(tmp_path / "rows.jsonl", [make(1), make(2, "rag")])
    expected = [("q1", "qa", "Question 1?"), ("q2", "rag", "Question 2?")]
    assert loaded(source, 2) == expected
    data = {"prompt": "Question 1?"}
    assert instruction("speed_bench", data) == "Question 1?"
    assert plain_text("speed_bench", data).startswith("Question 1?")


@pytest.mark.parametrize(
    ("options", "category"), [({}, "qa"), ({"subset": "throughput_1k"}, "mixed")]
)
def test_the_prepared_folder_is_read_as_it_stands(
    tmp_path: Path, options: dict[str, Any], category: str
) -> None:
    """All published fields, and a folder with a Parquet file for each subset, as the authors'
    preparing script leaves it."""
    import pyarrow
    from pyarrow import parquet

    published = {
        "sub_category": "a",
        "source": "b",
        "src_id": "c",
        "difficulty": "d",
        "multiturn": True,
    }
    for subset, own in (("qualitative", "qa"), ("throughput_1k", "mixed")):
        rows = [row(n, own, question_id=f"{own}{n}", **published) for n in (1, 2)]
        file = tmp_path / subset / "test.parquet"
        file.parent.mkdir()
        parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    found = loaded(str(tmp_path), 2, **options)
    assert found == [(f"{category}{n}", category, f"Question {n}?") for n in (1, 2)]


def test_subsets_and_categories_are_the_published_ones() -> None:
    assert {subset: len(names) for subset, names in SUBSETS.items()} == {
        "qualitative": 11,
        **{f"throughput_{k}k": 3 for k in (1, 2, 8, 16, 32)},
    }


def test_categories_are_chosen(tmp_path: Path) -> None:
    source = write(tmp_path / "r.jsonl", [row(1), row(2, "rag"), row(3, "math"), row(4)])
    assert [r[0] for r in loaded(source, 2, category="qa")] == ["q1", "q4"]
    assert [r[0] for r in loaded(source, 2, category=["rag", "math"])] == ["q2", "q3"]
    with pytest.raises(UserError, match="no row of category stem"):
        loaded(source, category="stem")


def test_a_subset_of_a_folder_is_its_file_or_folder(tmp_path: Path) -> None:
    write(tmp_path / "qualitative.jsonl", [row(1)])
    write(tmp_path / "throughput_1k" / "test.jsonl", [row(2, "mixed")])
    assert loaded(str(tmp_path)) == [("q1", "qa", "Question 1?")]
    assert loaded(str(tmp_path), subset="throughput_1k")[0][:2] == ("q2", "mixed")


BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "category": ({"category": "codng"}, "unknown category 'codng'; did you mean 'coding'?"),
    "one of several": ({"category": ["qa", "sten"]}, "unknown category 'sten'; did you mean"),
    "no list": ({"category": 3}, "expected a category or a list of them, got 3"),
    "empty": ({"category": []}, "expected a category or a list of them, got []"),
    "no text": ({"subset": ["qualitative"]}, "unknown subset ['qualitative']"),
    "subset": ({"subset": "throughput_3k"}, "unknown subset 'throughput_3k'; did you mean"),
    "of another subset": (
        {"subset": "throughput_1k", "category": "qa"},
        "subset 'throughput_1k' has no category 'qa'",
    ),
    "of qualitative": ({"category": "mixed"}, "subset 'qualitative' has no category 'mixed'"),
}


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as raised:
        row_options(Workload("speed_bench", "hub", options=options))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_bundled_rows_have_what_they_have() -> None:
    for options, message in (
        ({"category": "roleplay"}, "bundled rows have no category 'roleplay'"),
        ({"subset": "throughput_1k"}, "bundled rows are of 'qualitative', not 'throughput_1k'"),
    ):
        with pytest.raises(UserError, match=message):
            row_options(Workload("speed_bench", options=options))
    with pytest.raises(UserError, match="option 'category' is for speed_bench only"):
        row_options(Workload("gsm8k", options={"category": "qa"}))


BAD_ROWS: dict[str, tuple[Any, str]] = {
    "no turns": ({"question_id": "a", "category": "qa"}, "field 'turns': expected a list"),
    "empty turns": (row(1, turns=[]), "field 'turns': expected a list"),
    "text for turns": (row(1, turns="Hello"), "what the user says, got 'Hello'"),
    "no text": (row(1, turns=[" "]), "field 'turns': the first has no text"),
    "number": (row(1, turns=[7]), "field 'turns': the first has no text"),
    "the model speaks": (chat(1, role="assistant"), "'messages': the first is not the user's"),
    "no id": (row(1, question_id=None), "field 'question_id' is missing"),
    "empty id": (row(1, question_id=""), "field 'question_id' is missing"),
    "category": (row(1, "humanity"), "has no category 'humanity'; did you mean 'humanities'?"),
    "no category": ({"question_id": "a", "turns": ["t"]}, "has no category None"),
    "not prepared": (row(1, turns=[NOT_THERE]), "prepare the data as nvidia/SPEED-Bench says"),
}


@pytest.mark.parametrize(("bad", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows_name_their_place(tmp_path: Path, bad: Any, message: str) -> None:
    source = write(tmp_path / "rows.jsonl", [row(0), bad])
    with pytest.raises(UserError) as raised:
        loaded(source)
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"{source}, line 2: ")
    assert "\n" not in str(raised.value)


def test_an_id_may_be_zero(tmp_path: Path) -> None:
    source = write(tmp_path / "rows.jsonl", [row(1, question_id=0)])
    assert loaded(source) == [("0", "qa", "Question 1?")]


def test_what_is_not_there_matters_only_where_it_is_asked_for(tmp_path: Path) -> None:
    source = write(tmp_path / "rows.jsonl", [row(1, "rag", turns=[NOT_THERE]), row(2, "coding")])
    assert loaded(source, category="coding") == [("q2", "coding", "Question 2?")]


def test_the_hub_is_asked_for_the_subset_at_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def load_dataset(hub: str, config: str, *, split: str, revision: str) -> list[Any]:
        calls.append((hub, config, split, revision))
        return [row(1, SUBSETS[config][0])]

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    module.config = types.SimpleNamespace(HF_HUB_OFFLINE=False)  # type: ignore[attr-defined]
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "datasets", module)
    loaded("hub")
    loaded("hub", subset="throughput_8k")
    revision = UNSCORED["speed_bench"].revision
    assert len(revision) == 40
    assert calls == [
        ("nvidia/SPEED-Bench", "qualitative", "test", revision),
        ("nvidia/SPEED-Bench", "throughput_8k", "test", revision),
    ]


def test_bundled_rows_take_turns_and_are_the_same_again() -> None:
    rows = load_rows(Workload("speed_bench"), 0, 9)
    assert [one.data["category"] for one in rows] == [*STAND_INS] * 3
    assert len({one.id for one in rows}) == len({one.data["prompt"] for one in rows}) == 9
    assert load_rows(Workload("speed_bench"), 0, 5) == rows[:5]
    assert load_rows(Workload("speed_bench"), 1, 5) != rows[:5]
    only = load_rows(Workload("speed_bench", options={"category": "math"}), 0, 3)
    assert [one.data["prompt"] for one in only] == [one.data["prompt"] for one in rows[1::3]]


def test_it_is_measured_but_not_scored_or_trained_on() -> None:
    assert set(STAND_INS) <= set(QUALITATIVE_CATEGORIES)
    assert "speed_bench" in measurable()
    assert "speed_bench" not in WORKLOADS
    assert scoring.score_all("speed_bench", [{"prompt": "p"}], ["answer"]) == [{}]
