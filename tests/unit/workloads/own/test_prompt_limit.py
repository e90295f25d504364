"""The option `prompt_limit`: rows whose prompt, as the model reads it, has up to so many tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.nouns import Workload
from workloads import datasets
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


def test_other_workloads_have_no_limit() -> None:
    for name in ("gsm8k", "synthetic"):
        source = "bundled" if name == "gsm8k" else "generated"
        with pytest.raises(UserError, match="unknown option 'prompt_limit'"):
            datasets.row_options(Workload(name, source, options={"prompt_limit": 9}))
