"""The workload `sharegpt`, and the array reader that its files need."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.nouns import Workload
from workloads import datasets, readers
from workloads.measured import answer_length, cut_lengths
from workloads.own import json_array
from workloads.own.json_array import read_array
from workloads.readers import Budget


def talk(number: int, *turns: tuple[str, str]) -> dict[str, Any]:
    spoken = turns or (("human", f"Question {number}?"), ("gpt", f"Reply {number}."))
    return {"id": f"c{number}", "conversations": [{"from": f, "value": v} for f, v in spoken]}


def rows(
    path: Path, count: int, budget: Budget | None = None, **options: Any
) -> list[datasets.Row]:
    workload = Workload("sharegpt", str(path), options=options)
    found = datasets.load_rows(workload, 0, count, budget=budget)
    return sorted(found, key=lambda row: row.id)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.jsonl"])
def test_the_first_turn_is_asked_and_the_reply_is_the_answer(tmp_path: Path, name: str) -> None:
    talks = [talk(1), talk(2)]
    text = json.dumps(talks) if "jsonl" not in name else "\n".join(map(json.dumps, talks))
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    found = rows(tmp_path / name, 2)
    assert [row.id for row in found] == ["c1", "c2"]
    assert found[0].data["prompt"] == "Question 1?"
    assert found[0].data["answer"] == "Reply 1."
    assert "recorded_lengths" not in found[0].data
    assert rows(tmp_path / name, 2, recorded_lengths=True)[0].data["recorded_lengths"] == "true"


def test_a_conversation_may_stand_under_either_name(tmp_path: Path) -> None:
    talks = [{"id": "c1", "conversation": talk(1)["conversations"]}]
    (tmp_path / "a.json").write_text(json.dumps(talks))
    assert rows(tmp_path / "a.json", 1)[0].data["prompt"] == "Question 1?"


def test_replies_are_scored_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([talk(1), talk(2)]))
    assert [row.data["scorer"] for row in rows(path, 2)] == ["none", "none"]
    assert {row.data["scorer"] for row in rows(path, 2, scorer="rouge_l")} == {"rouge_l"}
    path.write_text(json.dumps([talk(1, ("human", "Why?"), ("gpt", "("))]))
    with pytest.raises(UserError, match=r"a\.json, row 1 \(line 1\): .* a regular expression"):
        rows(path, 1, scorer="regex")


@pytest.mark.parametrize("name", ["a.json", "A.JSON.GZ"])
def test_an_export_may_be_larger_than_what_is_parsed_whole(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MAX_ARRAY_BYTES", 10)
    data = json.dumps([talk(1)]).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("GZ") else data)
    assert len(rows(tmp_path / name, 1)) == 1


def test_what_does_not_begin_with_a_question_and_a_reply_is_left_out(tmp_path: Path) -> None:
    talks = [
        talk(1, ("gpt", "Go on."), ("human", "ok")),
        talk(2, ("human", "Only a question?")),
        {"id": "c3", "conversations": []},
        talk(4, ("human", " "), ("gpt", "What?")),
        talk(5, ("system", "Be brief."), ("human", "Why?"), ("gpt", "So."), ("human", "Oh.")),
        talk(6, ("bystander", "Why?"), ("gpt", "So.")),
        talk(7),
    ]
    (tmp_path / "a.json").write_text(json.dumps(talks))
    budget = Budget()
    found = rows(tmp_path / "a.json", 7, budget)
    assert {row.id for row in found} == {"c5", "c7"}
    place = f"{tmp_path / 'a.json'}, row 1 (line 1)"
    assert budget.remarks == [
        "workload sharegpt: 5 of 7 conversations left out; first: "
        f"{place}: expected the user's turn and the assistant's, got the assistant's and the user's"
    ]
    messages = json.loads(found[0].data["messages"])
    assert [message["role"] for message in messages] == ["system", "user"]


ODD: dict[str, tuple[Any, str]] = {
    "no turns": ({"id": "x"}, "field 'conversations': expected a list of turns, got nothing"),
    "a text": ({"conversations": "hi"}, "field 'conversations': expected a list of turns, got 'hi"),
    "text": ({"conversations": ["hi"]}, "turn 1: expected"),
    "value": ({"conversations": [{"from": "human"}]}, "turn 1: field 'value': expected a text"),
    "speaker": (
        talk(2, ("human", "Why?"), ("gtp", "So.")),
        "turn 2: unknown speaker 'gtp'; did you mean 'gpt'?",
    ),
    "list as speaker": ({"conversations": [{"from": [], "value": "x"}]}, "unknown speaker []"),
    "nobody": ({"conversations": [{"value": "x"}]}, "turn 1: unknown speaker None"),
    "nothing said": (talk(2, ("human", "Why?"), ("gpt", " \n")), "turn 2: expected a text, got no"),
    "nothing asked": (
        talk(2, ("system", "Be brief."), ("human", ""), ("gpt", "So.")),
        "turn 2: expected a text, got nothing",
    ),
    "surrogate": (talk(2, ("human", "\ud800"), ("gpt", "So.")), "turn 1: field 'value' holds half"),
    "empty": (talk(2) | {"conversations": []}, "the assistant's, got no turn"),
    "one turn": (talk(2, ("human", "Why?")), "the assistant's, got the user's"),
}


class SpacedWords:
    """A token for each word, and one that stands before every text."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [0] * add_special_tokens + [1] * len(text.split())


@pytest.mark.parametrize(("reply", "length"), [("one two", 2), ("three of them", 3), ("", 1)])
def test_a_recorded_length_counts_the_replys_own_tokens(reply: str, length: int) -> None:
    data = {"answer": reply, "recorded_lengths": "true"}
    assert answer_length(datasets.Row("x", data, 0.0), SpacedWords()) == length
    assert answer_length(datasets.Row("x", {"answer": reply}, 0.0), SpacedWords()) is None


def test_lengths_are_cut_beyond_the_most() -> None:
    assert cut_lengths([3, None, 4], 4) is None
    assert cut_lengths([], 1) is None
    told = cut_lengths([3, None, 4, 9], 3)
    assert told is not None
    assert "cuts 2 of 4 answers, whose lengths are given (the longest: 9)" in told


@pytest.mark.parametrize(("odd", "message"), ODD.values(), ids=ODD)
def test_an_odd_conversation_costs_itself_alone(tmp_path: Path, odd: Any, message: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps([talk(1), odd, talk(3), odd]))
    budget = Budget()
    assert [row.id for row in rows(tmp_path / "a.json", 2, budget)] == ["c1", "c3"]
    (told,) = budget.remarks
    place = f"{tmp_path / 'a.json'}, row 2 (line 1)"
    begin = f"workload sharegpt: 2 of 4 conversations left out; first: {place}: "
    assert told.startswith(begin)
    assert message in told
    assert "\n" not in told
    (tmp_path / "a.json").write_text(json.dumps([odd, odd]))
    with pytest.raises(UserError) as raised:
        rows(tmp_path / "a.json", 1)
    assert "holds no prompt; 2 of 2 conversations left out; first: " in str(raised.value)
    assert message in str(raised.value)


def test_what_comes_after_the_reply_may_be_odd(tmp_path: Path) -> None:
    talks = [talk(1), talk(2)]
    talks[0]["conversations"] += [{"from": "nobody", "value": None}, "hi"]
    talks[1]["conversations"].insert(0, {"from": "system", "value": ""})
    (tmp_path / "a.json").write_text(json.dumps(talks))
    budget = Budget()
    found = rows(tmp_path / "a.json", 2, budget)
    assert [row.data["prompt"] for row in found] == ["Question 1?", "Question 2?"]
    assert "messages" not in found[1].data, "a system that says nothing is none"
    assert budget.remarks == []


def test_all_files_of_a_folder_are_counted_together(tmp_path: Path) -> None:
    for number in range(3):
        content = json.dumps([talk(number), {"id": "odd"}])
        (tmp_path / f"part{number}.json").write_text(content)
    budget = Budget()
    assert len(rows(tmp_path, 3, budget)) == 3
    (told,) = budget.remarks
    assert told.startswith("workload sharegpt: 3 of 6 conversations left out; first: ")
    assert "part0.json, row 2" in told


def test_ids_that_stand_twice_cost_their_conversations_alone(tmp_path: Path) -> None:
    """Exports have such: equal ones are asked once, of others the first."""
    other = talk(1, ("human", "Else?"), ("gpt", "No."))
    path = tmp_path / "a.json"
    path.write_text(json.dumps([talk(1), talk(2), talk(1), other]))
    budget = Budget()
    assert {row.data["prompt"] for row in rows(path, 2, budget)} == {"Question 1?", "Question 2?"}
    assert budget.remarks == [
        f"workload sharegpt: 1 of 4 conversations left out; first: {path}, row 4 (line 1): the id "
        f"'c1' is another conversation's: {path}, row 1 (line 1)",
        "workload sharegpt: conversations that equal another are not asked again: 1",
    ]


BAD: dict[str, tuple[Any, str]] = {
    "number": (3, "row 2 (line 1): expected a JSON object, got 3"),
}


@pytest.mark.parametrize(("bad", "message"), BAD.values(), ids=BAD)
def test_a_bad_row_is_one_line(tmp_path: Path, bad: Any, message: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps([talk(1), bad]))
    with pytest.raises(UserError) as raised:
        rows(tmp_path / "a.json", 2)
    assert message in str(raised.value)
    assert "a.json, row 2" in str(raised.value)


def test_only_cut_conversations_are_no_prompts(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"id": "x", "conversations": []}]))
    with pytest.raises(UserError, match="holds no prompt"):
        rows(tmp_path / "a.json", 1)


@pytest.mark.parametrize("chunk", [1, 2, 7, 64, 1 << 20])
@pytest.mark.parametrize("indent", [None, 1])
def test_an_array_is_read_piece_by_piece(
    tmp_path: Path, chunk: int, indent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_array, "CHUNK", chunk)
    objects = [{"a": 'ä€😀\\"]}', "b": [1, {"c": None}]}, {}, {"d": -1.5e3}]
    path = tmp_path / "a.json"
    path.write_text(" \n" + json.dumps(objects, indent=indent, ensure_ascii=False) + "\n", "utf-8")
    found = list(read_array(path))
    assert [value for _, value in found] == objects
    assert found[0][0] == f"{path}, row 1 (line {3 if indent else 2})"


BROKEN: dict[str, tuple[bytes, str]] = {
    "cut": (b'[{"a": 1}, {"b": ', "line 1: not valid JSON"),
    "no comma": (b'[{"a": 1}\n{"b": 2}]', "line 2: not valid JSON: expected ',' or ']', got {"),
    "no end": (b'[{"a": 1}', "expected ',' or ']', got the end of the file"),
    "comma before the end": (b'[{"a": 1}, ]', "row 2 (line 1): expected a JSON object, got ]"),
    "empty": (b"[ ]", "the file holds no rows"),
    "not UTF-8": (b'[{"a": "\xff"}]', "not UTF-8 text (byte 0xff)"),
    "bad inside": (b'[\n{"a": 1},\n{"b": nul}]', "line 3: not valid JSON"),
    "deep": (b'[{"a": ' + b"[" * 100_000, "nested too deeply"),
    "digits": (b'[{"a": ' + b"1" * 5000 + b"}]", "not valid JSON"),
    "bad gzip": (b"\x1f\x8b broken", "not valid JSON"),
}


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_array_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    if content.startswith(b"\x1f"):
        path = path.rename(tmp_path / "a.json.gz")
        message = "broken gzip file"
    with pytest.raises(UserError) as raised:
        list(read_array(path))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_no_more_is_read_than_the_budget_has(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"a": 1}] * 5))
    assert len(list(read_array(path, Budget(bytes=100, rows=5)))) == 5
    for budget in (Budget(rows=4), Budget(bytes=10)):
        with pytest.raises(UserError, match="than are read"):
            list(read_array(path, budget))


def test_a_huge_object_is_refused_before_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_array, "MAX_ROW_BYTES", 100)
    monkeypatch.setattr(json_array, "CHUNK", 50)
    path = tmp_path / "a.json"
    path.write_text('[{"a": "' + "x" * 10_000)
    budget = Budget(bytes=300)
    with pytest.raises(UserError, match=r"row 1 .*longer than"):
        list(read_array(path, budget))
    assert budget.bytes > 0
