"""Calibration on prompts of the user's own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import models
from backends.early_exit.calibration.group import AnsweredGroup
from backends.early_exit.calibration.losses import AnswerLosses
from backends.early_exit.calibration.prompts import CalibrationPrompt, read_groups
from backends.early_exit.calibration.settings import Settings
from harness.core.errors import UserError
from harness.core.files import sha256
from tests.support.exits.calibrating import DEMO, SETTINGS, run
from tests.support.exits.fake_exits import Opener


def own_settings(path: Path, **row: Any) -> Settings:
    rows = [{"prompt": f"What is {n} plus {n}?", "id": str(n), **row} for n in range(80)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return replace(SETTINGS, workloads=("jsonl",), source=str(path), rows=80)


def test_answers_to_own_prompts_are_compared_with_the_full_models(
    engines: Opener, tmp_path: Path
) -> None:
    found = run(tmp_path / "c.json", own_settings(tmp_path / "own.jsonl"))
    assert found.prompts == {"jsonl": 80}


def test_own_prompts_have_a_score_where_each_row_names_its_scorer(
    engines: Opener, tmp_path: Path
) -> None:
    bare = replace(own_settings(tmp_path / "bare.jsonl"), metric="score")
    with pytest.raises(UserError, match=r"--risk: workload jsonl, row .* expected exact or rouge"):
        run(tmp_path / "c.json", bare)
    assert engines.opened == []
    scored = own_settings(tmp_path / "scored.jsonl", answer="four", scorer="contains")
    assert run(tmp_path / "c.json", replace(scored, metric="score")).prompts == {"jsonl": 80}


class Digits:
    """Token n is the digit n."""

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        return " ".join(map(str, ids))


def test_what_a_rows_own_scorer_finds_is_what_is_lost() -> None:
    settings = Settings("demo", "state", ("jsonl",), metric="score", target=0.5)
    data = {"prompt": "?", "scorer": "contains", "answer": "4"}
    groups = [[CalibrationPrompt("jsonl", str(n), (n,), 9, data)] for n in range(4)]
    full = [AnsweredGroup(((4, 1),), 1, 1, 1)] * 4
    own = [AnsweredGroup((ids,), 1, 1, 1) for ids in ((4, 1), (4, 2), (5,), (6,))]
    assert AnswerLosses(settings, groups, Digits()).held(full, own).quality == 0.5


class Thoughts(Digits):
    """Token 0 begins a thought, and token 1 ends one."""

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        text = super().decode(ids, skip_special_tokens=skip_special_tokens)
        return text.replace("0", "<think>").replace("1", "</think>")


def test_a_thought_that_is_cut_is_no_answer_as_in_trials() -> None:
    settings = Settings("demo", "state", ("xsum",), metric="score", target=0.5)
    data = {"document": "?", "summary": "4"}
    prompts = [(7,), (0,), (0,), (0,)]
    groups = [[CalibrationPrompt("xsum", str(n), ids, 9, data)] for n, ids in enumerate(prompts)]
    full = [AnsweredGroup(((1, 4),), 1, 1, 1)] * 4
    own = [AnsweredGroup((ids,), 1, 1, 1) for ids in ((4,), (4,), (4, 1, 5), (5, 1, 4))]
    assert AnswerLosses(settings, groups, Thoughts()).held(full, own).quality == 0.5


def test_an_answer_whose_score_cannot_be_found_is_refused() -> None:
    settings = Settings("demo", "state", ("humaneval",), metric="score", target=0.5)
    data = {"prompt": "def f():\n", "entry_point": "f", "test": "import no_such_module"}
    groups = [[CalibrationPrompt("humaneval", "7", (7,), 9, data)]]
    answered = [AnsweredGroup(((4, 1),), 1, 1, 1)]
    why = "--risk: workload humaneval, row 7 has no score: the row's tests cannot run: "
    with pytest.raises(UserError, match=why):
        AnswerLosses(settings, groups, Digits()).held(answered, answered)


def test_the_file_that_prompts_came_from_is_stated_and_stored(
    engines: Opener, tmp_path: Path
) -> None:
    path = tmp_path / "own.jsonl"
    found = run(tmp_path / "c.json", own_settings(path))
    digest = sha256(path)
    assert found.data == {"jsonl": {"source": str(path.resolve()), "sha256": digest}}
    assert f"(80 jsonl) of source own.jsonl (sha256 {digest[:12]})" in found.statement
    bundled = run(tmp_path / "d.json")
    assert bundled.data == {"gsm8k": {"source": "bundled"}, "xsum": {"source": "bundled"}}
    assert "(40 gsm8k, 40 xsum) of source bundled and" in bundled.statement


def test_an_answer_that_its_row_bounds_is_cut_there(engines: Opener, tmp_path: Path) -> None:
    groups = read_groups(
        own_settings(tmp_path / "own.jsonl", max_new_tokens=3), DEMO, models.load_tokenizer(DEMO)
    )
    assert {prompt.limit for group in groups for prompt in group} == {3}
    losses = AnswerLosses(own_settings(tmp_path / "own.jsonl"), groups, None)
    full = [AnsweredGroup(((7, 8, 9),), 1, 1, 1)] * len(groups)
    assert losses.told(full, stops=())["jsonl"] == {"max_new_tokens": 256, "cut": 1.0}
    assert losses.told(full, stops=(9,))["jsonl"]["cut"] == 0.0


def test_options_of_a_workload_are_stated_and_stored(engines: Opener, tmp_path: Path) -> None:
    options = {"xsum": {"max_article_tokens": 20}}
    found = run(tmp_path / "c.json", replace(SETTINGS, workload_options=options))
    assert found.data["xsum"] == {"source": "bundled", "options": {"max_article_tokens": 20}}
    assert "of source bundled (xsum: max_article_tokens 20) and" in found.statement
    with pytest.raises(UserError, match="workload_options was "):
        run(tmp_path / "c.json")
    with pytest.raises(UserError, match="no workload 'humaneval' here"):
        run(tmp_path / "d.json", replace(SETTINGS, workload_options={"humaneval": {}}))
