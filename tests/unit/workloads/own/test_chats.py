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
    path.write_text("id,prompt\n1,first\n2,\n")
    with pytest.raises(UserError, match="line 3: field 'prompt': expected text, got nothing"):
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


BAD_ROWS: dict[str, tuple[Any, str]] = {
    "neither": ({"text": "x"}, "line 2: expected 'prompt' or 'messages', got neither"),
    "misspelt": ({"promt": "x"}, "got neither; did you mean 'promt'"),
    "both": ({"prompt": "x", "messages": [said("user", "x")]}, "got both"),
    "number": ({"prompt": 3}, "line 2: field 'prompt': expected text, got 3"),
    "blank": ({"prompt": " "}, "field 'prompt': expected text"),
    "no list": ({"messages": "hi"}, "field 'messages': expected a list of messages, got 'hi'"),
    "empty list": ({"messages": []}, "field 'messages': expected a list of messages, got []"),
    "text in list": ({"messages": ["hi"]}, "message 1: expected"),
    "role": (
        {"messages": [said("usr", "x")]},
        "message 1: unknown role 'usr'; did you mean 'user'",
    ),
    "parts": (
        {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
        "message 1: expected a text as 'content'",
    ),
    "system last": ({"messages": [said("system", "x")]}, "the last is the system's; expected the"),
    "answer alone": ({"messages": [said("assistant", "x")]}, "expected the user's message before"),
    "id": ({"id": [1], "prompt": "x"}, "field 'id': expected a text or a whole number"),
    "flag as id": ({"id": True, "prompt": "x"}, "expected a text or a whole number, got True"),
    "system before the answer": (
        {"messages": [said("user", "x"), said("system", "y"), said("assistant", "z")]},
        "expected the user's message before the answer",
    ),
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
