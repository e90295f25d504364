"""The workload `jsonl`: rows that cost themselves alone, rows that are equal, keys that nobody
reads, and answers whose lengths a row gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.nouns import Workload
from workloads import datasets
from workloads.readers import Budget


def read(folder: Path, rows: list[Any]) -> tuple[list[datasets.Row], list[str]]:
    """The rows of a file in the order of their ids, and the remarks on it."""
    source, budget = folder / "rows.jsonl", Budget()
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = datasets.load_rows(Workload("jsonl", str(source)), 0, len(rows), budget=budget)
    return sorted(found, key=lambda row: row.id), budget.remarks


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def chat(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"messages": list(messages)}


CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
UNASKABLE: dict[str, tuple[dict[str, Any], str]] = {
    "blank": ({"prompt": " "}, "field 'prompt': expected text"),
    "nothing": ({"prompt": None}, "field 'prompt': expected text, got nothing"),
    "empty list": (chat(), "field 'messages': expected a list of messages, got []"),
    "picture": (
        chat(said("user", [{"type": "text", "text": "What?"}, {"type": "image_url"}])),
        "message 1: expected a text as 'content', got [{'type'",
    ),
    "no parts": (chat(said("user", [])), "message 1: expected a text as 'content', got []"),
    "call": (chat(said("user", "x"), CALL), "message 2: expected a text as 'content', got nothing"),
    "tool": (
        chat(said("user", "x"), said("tool", "7"), said("user", "y")),
        "message 2: is a tool's; chats are texts alone",
    ),
    "system last": (chat(said("system", "x")), "the last is the system's; expected the user's"),
    "answer alone": (chat(said("assistant", "x")), "expected the user's message before the answer"),
    "system before the answer": (
        chat(said("user", "x"), said("system", "y"), said("assistant", "z")),
        "expected the user's message before the answer",
    ),
}


@pytest.mark.parametrize(("odd", "message"), UNASKABLE.values(), ids=UNASKABLE)
def test_a_row_that_cannot_be_asked_costs_itself_alone(
    tmp_path: Path, odd: dict[str, Any], message: str
) -> None:
    found, (told,) = read(tmp_path, [{"id": "a", "prompt": "x"}, odd, {"id": "b", "prompt": "y"}])
    assert [row.id for row in found[:2]] == ["a", "a"], "asked again in the place of the third"
    place = f"{tmp_path / 'rows.jsonl'}, line 2: "
    assert told.startswith(f"workload jsonl: 1 of 3 rows left out; first: {place}")
    assert message in told
    assert "\n" not in told
    with pytest.raises(UserError) as raised:
        read(tmp_path, [odd])
    assert "holds no prompt; 1 of 1 rows left out; first: " in str(raised.value)
    assert message in str(raised.value)


def test_parts_that_are_texts_are_a_text(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "Why"}, "is it?"]
    found, remarks = read(tmp_path, [{"id": "a"} | chat(said("user", parts))])
    assert (found[0].data["prompt"], remarks) == ("Why\nis it?", [])


def test_equal_rows_are_told(tmp_path: Path) -> None:
    rows = [{"prompt": "a"}, {"prompt": "b"}, {"prompt": "a"}, {"prompt": "a"}]
    found, (told,) = read(tmp_path, rows)
    assert len({row.id for row in found}) == 2
    begin = "workload jsonl: rows that equal another and have no id are not asked again: 2; with"
    assert told.startswith(begin)
    named = [{"id": number, **row} for number, row in enumerate(rows)]
    assert read(tmp_path, named)[1] == []


def test_a_scorer_changes_neither_names_nor_draw(tmp_path: Path) -> None:
    """The names are those that rows without a scorer had before there were any."""
    rows = [{"prompt": f"Say {number}.", "answer": str(number)} for number in range(9)]
    plain, _ = read(tmp_path, rows)
    scored, _ = read(tmp_path, [row | {"scorer": "contains"} for row in rows])
    assert [row.id for row in scored] == [row.id for row in plain]
    assert {row.data["scorer"] for row in scored} == {"contains"}
    assert "f7633fa7698c949f" in {row.id for row in plain}


def test_keys_that_nobody_reads_are_told_once(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "system": "Be brief.", "max_tokens": 7}, {"prompt": "b", "system": ""}]
    _, (told,) = read(tmp_path, rows)
    assert told == (
        "workload jsonl: keys of rows that are not read: 'system', 'max_tokens', in 2 of them; "
        "read are prompt, messages, id, answer, scorer, output_tokens, max_new_tokens; a system's "
        "text is a message of 'messages'"
    )
    many = {f"{number}\n" * 30: 1 for number in range(30)}
    (told,) = read(tmp_path, [{"prompt": "a", **many}])[1]
    assert len(told) < 800
    assert "\n" not in told
    assert ", ..., in 1 of them; read are" in told


def test_a_row_gives_the_length_of_its_answer(tmp_path: Path) -> None:
    rows = [{"id": "a", "prompt": "x", "output_tokens": 7.0}, {"id": "b", "prompt": "x"}]
    found, remarks = read(tmp_path, [*rows, {"id": "c", "prompt": "x", "max_new_tokens": "9"}])
    lengths = [(r.data.get("output_tokens"), r.data.get("max_new_tokens")) for r in found]
    assert (lengths, remarks) == ([("7", None), (None, None), (None, "9")], [])
    assert datasets.checksum(found[:1]) != datasets.checksum(read(tmp_path, rows[1:])[0])


@pytest.mark.parametrize("length", [0, -1, 1.5, "many", True, 32_769, 10**30, [7]])
def test_a_length_that_cannot_be_is_one_line(tmp_path: Path, length: Any) -> None:
    with pytest.raises(UserError) as raised:
        read(tmp_path, [{"prompt": "x", "output_tokens": length}])
    expected = "line 1: field 'output_tokens': expected a whole number from 1 to 32768, got "
    assert expected in str(raised.value)
