"""Training on prompts of the user's own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import models
from backends.training.exits.data import prompts_checksum, read_prompts, told_rows
from backends.training.exits.recipe import STATE, ExitRecipe, check_recipe
from harness.core.errors import UserError
from harness.core.nouns import Load, Model, Trial, Workload
from tests.support.engine.tiny_heads import StandInKillError, killer, train
from workloads.measured import load_prompts, load_rows, rows_checksum
from workloads.prompts import encode_prompt


def own_prompts(path: Path) -> Path:
    rows = [{"prompt": f"What is {n} plus {n}?"} for n in range(8)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_heads_are_trained_on_own_prompts_with_answers_of_the_length_asked_for(
    model: Path, tmp_path: Path
) -> None:
    source = own_prompts(tmp_path / "own.jsonl")
    own = {"workloads": ["jsonl"], "source": str(source), "max_new_tokens": 5}
    with pytest.raises(StandInKillError):
        train(model, tmp_path / "out", progress=killer("epochs", 1), **own)
    lines = (tmp_path / "out" / STATE / "answers.jsonl").read_text().splitlines()
    lengths = [len(ids) for line in lines for _, ids in json.loads(line)]
    assert (len(lengths), max(lengths)) == (8, 5)
    content = train(model, tmp_path / "out", **own)
    assert content["finished"]
    assert content["report"]["layers"]["3"].keys() == {"all", "jsonl"}
    with pytest.raises(UserError, match="has --max-new-tokens 5, this one --max-new-tokens 6"):
        train(model, tmp_path / "out", **own | {"max_new_tokens": 6})


def test_exported_conversations_are_prompts_too(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "Count to three."}, {"from": "gpt", "value": "1 2 3"}]
    chats = [{"id": str(n), "conversations": turns} for n in range(4)]
    (tmp_path / "chats.json").write_text(json.dumps(chats))
    recipe = ExitRecipe("", (1,), ("sharegpt",), source=str(tmp_path / "chats.json"))
    tokenizer = models.load_tokenizer(models.BUNDLED["demo"])
    found = read_prompts(recipe, tokenizer, 4096)
    assert [prompt.limit for prompt in found] == [1024] * 4
    assert "Count to three." in tokenizer.decode(found[0].ids)


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (ExitRecipe("", (1,), ("jsonl",)), "jsonl is of your own prompts; expected their file"),
        (ExitRecipe("", (1,), ("synthetic",), source="x"), "unknown workload 'synthetic'"),
        (ExitRecipe("", (1,), ("My.JSONL",)), "of your own: --workload jsonl --source My.JSONL"),
        (ExitRecipe("", (1,), ("jsonll",), source="x"), "did you mean 'jsonl'?"),
        (ExitRecipe("", (1,), ("gsm8k",), max_new_tokens=1), "--max-new-tokens: expected at least"),
    ],
)
def test_what_is_no_own_prompt_is_refused(recipe: ExitRecipe, words: str) -> None:
    with pytest.raises(UserError) as refused:
        check_recipe(recipe)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_row_s_own_bound_is_its_answer_s(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    rows: list[dict[str, object]] = [{"prompt": f"Say {n}.", "max_new_tokens": 3} for n in range(3)]
    rows += [{"prompt": "Say it all."}, {"prompt": "Say more.", "max_new_tokens": 900}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = ExitRecipe("", (1,), ("jsonl",), source=str(path))
    tokenizer = models.load_tokenizer(models.BUNDLED["demo"])
    found = read_prompts(recipe, tokenizer, 4096)
    assert sorted(prompt.limit for prompt in found) == [3, 3, 3, 256, 256]
    short = read_prompts(recipe, tokenizer, 100)
    assert [prompt.limit for prompt in short] == [3, 3, 3], "the others do not fit"


def test_rows_are_chosen_and_cut_as_in_an_experiment() -> None:
    tokenizer = models.load_tokenizer(models.BUNDLED["demo"])
    whole = ExitRecipe("", (1,), ("xsum", "gsm8k"), rows=8)
    options = {"xsum": {"max_article_tokens": 20, "article_limit": 200}}
    check_recipe(cut := replace(whole, workload_options=options))
    plain, own = (read_prompts(recipe, tokenizer, 4096) for recipe in (whole, cut))
    for prompt in own[:8]:
        assert prompt.ids == encode_prompt(tokenizer, "xsum", prompt.data, 20)
        assert len(tokenizer.encode(prompt.data["document"], add_special_tokens=False)) < 200
    assert max(len(prompt.ids) for prompt in own[:8]) < min(len(p.ids) for p in plain[:8])
    assert own[8:] == plain[8:], "an option is of its workload alone"
    with pytest.raises(UserError, match="--workload-option: no workload 'xsun' here; did you mean"):
        check_recipe(replace(whole, workload_options={"xsun": {}}))
    wrong = {"gsm8k": {"max_article_tokens": 20}}
    with pytest.raises(UserError, match="option 'max_article_tokens' is for cnn_dailymail and xs"):
        read_prompts(replace(whole, workload_options=wrong), tokenizer, 4096)


def test_chats_are_written_as_an_experiment_asks_them(tmp_path: Path) -> None:
    tokenizer = models.load_tokenizer(models.BUNDLED["demo"])
    tokenizer.chat_template = "{{ messages[-1].content }}{% if brief %} Be brief.{% endif %}"
    source = str(own_prompts(tmp_path / "own.jsonl"))
    plain = ExitRecipe("", (1,), ("jsonl",), source=source, rows=8)
    options = {"chat": {"template_kwargs": {"brief": True}}}
    recipe = replace(plain, workload_options={"jsonl": options})
    own = Workload("jsonl", source, 8, options)
    own = replace(own, checksum=rows_checksum(own, load_rows(own, 0, 8, tokenizer)))
    trial = Trial("scripted", {}, Model("m"), own, Load("closed", concurrency=1), 8, 8)
    asked = [list(prompt.token_ids) for prompt in load_prompts(trial, tokenizer)]
    found = read_prompts(recipe, tokenizer, 4096)
    assert [prompt.ids for prompt in found] == asked
    assert tokenizer.decode(asked[0]).endswith(" Be brief.")
    assert prompts_checksum(found) != prompts_checksum(read_prompts(plain, tokenizer, 4096))
    options["chat"] = {"template_kwargs": {"breif": True}}
    with pytest.raises(UserError, match="does not read 'breif'; did you mean 'brief'"):
        read_prompts(recipe, tokenizer, 4096)


def test_the_option_is_humanevals_where_rows_of_mbpp_stand_in_for_its_own(tmp_path: Path) -> None:
    rows = [
        {"text": f"Add {n}.", "code": f"def add(x):\n    return x + {n}",
         "test_list": [f"assert add(1) == {n + 1}"], "task_id": n}
        for n in range(4)
    ]  # fmt: skip
    (tmp_path / "mbpp.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = models.load_tokenizer(models.BUNDLED["demo"])
    tokenizer.chat_template = "{{ messages[-1].content }}{% if brief %} Be brief.{% endif %}"
    plain = ExitRecipe("", (1,), ("humaneval",), source=str(tmp_path / "mbpp.jsonl"), rows=4)
    options: dict[str, Any] = {"chat": {"template_kwargs": {"brief": True}}}
    recipe = replace(plain, workload_options={"humaneval": options})
    found = read_prompts(recipe, tokenizer, 4096)
    assert all(tokenizer.decode(prompt.ids).endswith(" Be brief.") for prompt in found)
    assert told_rows(recipe, "humaneval")["options"] == options
    options["chat"] = {"template_kwarg": {}}
    with pytest.raises(UserError, match="workload humaneval: option 'chat': unknown key"):
        read_prompts(recipe, tokenizer, 4096)
