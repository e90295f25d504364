"""The option `prompt_limit`: rows whose prompt, as the model reads it, has up to so many tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.nouns import Workload
from workloads import datasets
from workloads.chat import chat_of
from workloads.measured import load_rows
from workloads.prompts import encode_prompt
from workloads.readers import Budget


def file(folder: Path, name: str) -> str:
    texts = ["a", "a b c , . a b c , .", "b"]
    if name == "jsonl":
        rows: list[Any] = [{"id": text[:3], "prompt": text} for text in texts]
    else:
        spoken = [[("human", text), ("gpt", "c")] for text in texts]
        rows = [
            {"id": turns[0][1][:3], "conversations": [{"from": f, "value": v} for f, v in turns]}
            for turns in spoken
        ]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(folder / "rows.jsonl")


@pytest.mark.parametrize("name", ["jsonl", "sharegpt"])
def test_longer_prompts_are_left_out_and_told(
    tmp_path: Path, chat_tokenizer: Any, name: str
) -> None:
    source = file(tmp_path, name)
    every = load_rows(Workload(name, source), 0, 3, None)
    lengths = {row.id: len(encode_prompt(chat_tokenizer, name, row.data)) for row in every}
    most = max(lengths["a"], lengths["b"])
    assert lengths["a b"] > most > len(chat_tokenizer.encode("a")), "the template counts"
    workload, budget = Workload(name, source, options={"prompt_limit": most}), Budget()
    found = load_rows(workload, 0, 3, chat_tokenizer, budget)
    kept = [row.id for row in every if row.id != "a b"]
    assert [row.id for row in found] == [*kept, kept[0]]
    assert budget.remarks == [
        f"workload {name}: 1 of 3 rows drawn left out; first: {source}, line 2: a prompt of "
        f"{lengths['a b']} tokens, beyond 'prompt_limit'"
    ]


def test_a_limit_below_every_prompt_is_one_line(tmp_path: Path, chat_tokenizer: Any) -> None:
    workload = Workload("jsonl", file(tmp_path, "jsonl"), options={"prompt_limit": 1})
    with pytest.raises(UserError) as raised:
        load_rows(workload, 0, 3, chat_tokenizer)
    assert "only 0 of source" in str(raised.value)
    assert "fit; 3 of 3 rows drawn left out; first: " in str(raised.value)
    with pytest.raises(ValueError, match="prompt_tokens"):
        datasets.load_rows(workload, 0, 3)


@pytest.mark.parametrize("source", ["bundled", "file"])
def test_data_sets_have_it_too(tmp_path: Path, chat_tokenizer: Any, source: str) -> None:
    if source == "file":
        source = str(tmp_path / "a.jsonl")
        texts = ["Why?", "Why? " * 40, "When?"]
        rows = [{"id": n, "question": text, "answer": "#### 1"} for n, text in enumerate(texts)]
        Path(source).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    every = load_rows(Workload("gsm8k", source), 0, 3, None)
    lengths = [len(encode_prompt(chat_tokenizer, "gsm8k", row.data)) for row in every]
    workload, budget = (
        Workload("gsm8k", source, options={"prompt_limit": max(lengths) - 1}),
        Budget(),
    )
    found = load_rows(workload, 0, 3, chat_tokenizer, budget)
    kept = [len(encode_prompt(chat_tokenizer, "gsm8k", row.data)) for row in found]
    assert max(kept) < max(lengths)
    longest = every[lengths.index(max(lengths))]
    assert longest.id not in {row.id for row in found}
    place = longest.place or f"row '{longest.id}'"
    assert f"first: {place}: a prompt of {max(lengths)} tokens, beyond" in budget.remarks[0]
    assert bool(longest.place) == (source != "bundled")


def test_the_articles_that_are_kept_and_the_system_count(
    tmp_path: Path, chat_tokenizer: Any
) -> None:
    source = tmp_path / "a.jsonl"
    row = {"id": "a", "document": "a b c , . " * 20, "summary": "a b"}
    source.write_text(json.dumps(row))
    cut = {"max_article_tokens": 5}
    for options in (cut, cut | {"chat": {"system": "a b c . a b c ."}}):
        workload = Workload("xsum", str(source), options=options)
        length = len(encode_prompt(chat_tokenizer, "xsum", row, 5, chat_of(workload)))
        assert load_rows(limited(workload, length), 0, 1, chat_tokenizer)[0].id == "a"
        with pytest.raises(UserError, match="beyond 'prompt_limit'"):
            load_rows(limited(workload, length - 1), 0, 1, chat_tokenizer)


def limited(workload: Workload, tokens: int) -> Workload:
    return replace(workload, options={**workload.options, "prompt_limit": tokens})


@pytest.mark.parametrize("name", ["synthetic", "sentiment", "shapes"])
def test_what_is_no_text_has_no_limit(name: str) -> None:
    source = "generated" if name == "synthetic" else "bundled"
    with pytest.raises(UserError, match="unknown option 'prompt_limit'"):
        datasets.row_options(Workload(name, source, options={"prompt_limit": 9}))
    assert not datasets.takes(name, "prompt_limit")
    assert datasets.takes("gsm8k", "prompt_limit")


@pytest.mark.parametrize("limit", [0, True, "9", 1.5])
def test_a_limit_that_cannot_be_is_one_line(limit: Any) -> None:
    with pytest.raises(UserError, match="'prompt_limit': expected a positive whole number"):
        datasets.row_options(Workload("gsm8k", options={"prompt_limit": limit}))
