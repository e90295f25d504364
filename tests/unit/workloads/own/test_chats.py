"""The workload `jsonl`: what its rows may be, and one line for each that is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.nouns import Workload
from workloads import datasets, prompts, scoring
from workloads.own.scorers import SCORERS


def write(path: Path, rows: list[Any]) -> str:
    path.write_text(
        "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in rows)
    )
    return str(path)


def loaded(folder: Path, rows: list[Any], count: int | None = None, **options: Any) -> list[Any]:
    source = write(folder / "rows.jsonl", rows)
    workload = Workload("jsonl", source, options=options)
    found = datasets.load_rows(workload, 0, count or len(rows))
    return sorted(found, key=lambda row: row.id)


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def test_a_prompt_is_read_as_it_stands(tmp_path: Path, chat_tokenizer: Any) -> None:
    (row,) = loaded(tmp_path, [{"id": "a", "prompt": " Say hello .\n", "other": [1]}])
    assert (row.id, row.data["prompt"]) == ("a", " Say hello .\n")
    assert prompts.plain_text("jsonl", row.data) == " Say hello .\n"
    assert "answer" not in row.data
    assert prompts.answer_if_any("jsonl", row.data) == ""


def test_one_message_of_the_user_is_a_prompt(tmp_path: Path) -> None:
    rows = [{"id": 1, "prompt": "Hello"}, {"id": 2, "messages": [said("user", "Hello")]}]
    first, second = loaded(tmp_path, rows)
    assert first.data["prompt"] == second.data["prompt"]
    assert "messages" not in second.data


def test_a_chat_goes_through_the_models_template(tmp_path: Path, chat_tokenizer: Any) -> None:
    messages = [said("user", "say"), said("assistant", "twice"), said("user", "please")]
    (row,) = loaded(tmp_path, [{"messages": messages}])
    expected = chat_tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    assert prompts.prompt_text(chat_tokenizer, "jsonl", row.data) == expected
    assert prompts.plain_text("jsonl", row.data) == "say\n\ntwice\n\nplease"


def test_a_template_that_refuses_the_chat_is_one_line(tmp_path: Path, chat_tokenizer: Any) -> None:
    (row,) = loaded(tmp_path, [{"id": "x", "messages": [said("system", "s"), said("user", "u")]}])
    chat_tokenizer.chat_template = "{{ raise_exception('no system') }}"
    with pytest.raises(UserError, match="row 'x': the model's chat template refuses it: no system"):
        prompts.prompt_text(chat_tokenizer, "jsonl", row.data)


def test_the_assistants_last_message_is_the_answer(tmp_path: Path) -> None:
    messages = [said("user", "2+2?"), said("assistant", "4")]
    (row,) = loaded(tmp_path, [{"messages": messages}], scorer="exact")
    assert (row.data["prompt"], row.data["answer"]) == ("2+2?", "4")
    (row,) = loaded(tmp_path, [{"messages": messages, "answer": "four"}])
    assert row.data["answer"] == "four"


def test_rows_without_an_id_are_named_by_their_content(tmp_path: Path) -> None:
    rows = [{"prompt": "a"}, {"prompt": "b"}, {"prompt": "a"}]
    found = loaded(tmp_path, rows)
    assert len({row.id for row in found}) == 2
    assert found == loaded(tmp_path, rows[::-1])


def test_an_empty_id_is_none(tmp_path: Path) -> None:
    found = loaded(tmp_path, [{"id": "", "prompt": "a"}, {"id": None, "prompt": "b"}])
    assert all(len(row.id) == 16 for row in found)


def test_which_rows_are_drawn_depends_on_the_seed(tmp_path: Path) -> None:
    source = write(tmp_path / "r.jsonl", [{"id": i, "prompt": f"p{i}"} for i in range(50)])

    def ids(seed: int, count: int) -> list[str]:
        return [row.id for row in datasets.load_rows(Workload("jsonl", source), seed, count)]

    assert ids(0, 20)[:10] == ids(0, 10)
    assert ids(0, 10) != ids(1, 10)


BAD_ROWS: dict[str, tuple[Any, str]] = {
    "neither": ({"text": "x"}, "line 2: expected 'prompt' or 'messages', got neither"),
    "misspelt": ({"promt": "x"}, "got neither (the row has: promt)"),
    "export": (
        {"id": "x", "conversations": []},
        "(the row has: id, conversations); workload 'sharegpt' reads such a file",
    ),
    "both": ({"prompt": "x", "messages": [said("user", "x")]}, "got both"),
    "number": ({"prompt": 3}, "line 2: field 'prompt': expected text, got 3"),
    "no list": ({"messages": "hi"}, "field 'messages': expected a list of messages, got 'hi'"),
    "text in list": ({"messages": ["hi"]}, "message 1: expected"),
    "role": (
        {"messages": [said("usr", "x")]},
        "message 1: unknown role 'usr'; did you mean 'user'",
    ),
    "id": ({"id": [1], "prompt": "x"}, "field 'id': expected a text or a whole number"),
    "flag as id": ({"id": True, "prompt": "x"}, "expected a text or a whole number, got True"),
    "id again": ({"id": "first", "prompt": "x"}, "the id 'first' stands twice"),
    "scorer": ({"prompt": "x", "scorer": "exat"}, "unknown scorer 'exat'; did you mean 'exact'"),
    "list for a scorer": ({"prompt": "x", "scorer": ["exact"]}, "unknown scorer ['exact']"),
    "no answer": (
        {"prompt": "x", "scorer": "exact", "anwser": "y"},
        "field 'answer' is missing; scorer 'exact' needs it (found 'anwser')",
    ),
    "pattern": (
        {"prompt": "x", "scorer": "regex", "answer": "("},
        "field 'answer': expected a regular expression, got '('",
    ),
    "surrogate": ('{"prompt": "\\ud800"}', "half a surrogate pair"),
    "surrogate in a chat": (
        '{"messages": [{"role": "user", "content": "\\ud800"}]}',
        "field 'messages' holds half a surrogate pair",
    ),
    "no JSON": ("{'prompt': 1}", "line 2: not valid JSON"),
    "no object": ("[1]", "line 2: expected a JSON object"),
}


@pytest.mark.parametrize(("bad", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_one_line_with_its_place(tmp_path: Path, bad: Any, message: str) -> None:
    with pytest.raises(UserError) as raised:
        loaded(tmp_path, [{"id": "first", "prompt": "fine"}, bad], 2)
    told = str(raised.value)
    assert message in told
    assert "rows.jsonl, line 2" in told
    assert "\n" not in told


BAD_ENTRIES: dict[str, tuple[Workload, str]] = {
    "no file": (Workload("jsonl", ""), "expected 'source: FILE' with your prompts"),
    "bundled": (Workload("sharegpt", "bundled"), "with your prompts, got 'bundled'"),
    "hub": (Workload("jsonl", "hub"), "with your prompts, got 'hub'"),
    "option": (
        Workload("jsonl", "x", options={"scorr": "exact"}),
        "unknown option 'scorr'; did you mean 'scorer'?",
    ),
    "scorer": (
        Workload("jsonl", "x", options={"scorer": "rouge"}),
        "option 'scorer': unknown scorer 'rouge'; did you mean 'rouge_l'?",
    ),
    "lengths": (
        Workload("sharegpt", "x", options={"recorded_lengths": 1}),
        "option 'recorded_lengths': expected true or false, got 1",
    ),
    "made from a file": (Workload("synthetic", "x"), "its prompts are made; leave 'source' out"),
}


@pytest.mark.parametrize(("workload", "message"), BAD_ENTRIES.values(), ids=BAD_ENTRIES)
def test_a_bad_entry_is_one_line(workload: Workload, message: str) -> None:
    with pytest.raises(UserError) as raised:
        datasets.row_options(workload)
    assert message in str(raised.value)


def test_a_missing_file_is_one_line() -> None:
    with pytest.raises(UserError, match=r"source 'no\.jsonl' does not exist"):
        datasets.load_rows(Workload("jsonl", "no.jsonl"), 0, 1)


@pytest.mark.parametrize(
    ("scorer", "answer", "text", "value"),
    [
        ("exact", " Paris\n", "Paris", 1.0),
        ("exact", "Paris", "paris", 0.0),
        ("exact", "Paris", "It is Paris", 0.0),
        ("contains", "New  York", "It is new york .", 1.0),
        ("contains", "Paris", "It is new york .", 0.0),
        ("regex", r"\b4\d\b", "It is 42.", 1.0),
        ("regex", r"^42", "It is 42.", 0.0),
        ("rouge_l", "the cat sat", "the cat sat", 1.0),
        ("rouge_l", "the cat sat", "the dog sat", 2 / 3),
        ("rouge_l", "?!", "anything", 0.0),
    ],
)
def test_each_row_is_scored_by_its_own_scorer(
    scorer: str, answer: str, text: str, value: float
) -> None:
    rows: list[dict[str, str]] = [
        {"prompt": "p", "scorer": scorer, "answer": answer},
        {"prompt": "p"},
    ]
    found = scoring.score_all("jsonl", rows, [text, text])
    assert found == [{SCORERS[scorer]: pytest.approx(value)}, {}]


def test_a_rows_scorer_goes_before_the_entrys(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "prompt": "p", "answer": "a"},
        {"id": 2, "prompt": "p", "answer": 7, "scorer": "contains"},
        {"id": 3, "prompt": "p", "scorer": "none"},
    ]
    found = loaded(tmp_path, rows, scorer="exact")
    assert [row.data["scorer"] for row in found] == ["exact", "contains", "none"]
    assert found[1].data["answer"] == "7"
