"""Prompts that are asked again within a trial are remarked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from backends.checkpoints import models
from backends.scripted import ScriptedBackend
from harness.cli.session import EngineSession
from harness.core.names import DRAFTS_FROM_ANSWERS
from harness.core.nouns import Generation, Trial
from results.compare.reasons import REMARKS
from tests.support.harness.resolved import trials
from tests.support.tiny_llama import EOS_ID, write_tiny_llama


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model"))


def session(model: Path, *capabilities: str) -> EngineSession:
    backend = ScriptedBackend({})
    backend.info = replace(backend.info, capabilities=frozenset(capabilities))
    return EngineSession(backend, models.load_tokenizer(model), (EOS_ID,), 0.0)


def remarks(opened: EngineSession, trial: Trial, ids: list[str] | None = None) -> list[str]:
    ids = ids or [request.id for request in opened.requests(trial)[1]]
    opened.finish(trial, [Generation(one, 0, 0, 0, [1], [1], [5], "stop") for one in ids])
    return opened.remarks(trial)


def test_too_few_rows_are_told(model: Path) -> None:
    opened = session(model)
    [few] = trials(model, workloads=[{"name": "gsm8k", "rows": 4}])
    told = "prompts-repeated: 2 of 6 requests ask one of 4 prompts again"
    assert remarks(opened, few) == [told]
    assert remarks(opened, trials(model)[0]) == []
    learning = session(model, DRAFTS_FROM_ANSWERS)
    assert remarks(learning, few) == [f"{told}, whose earlier answers drafts come from"]


def test_rows_that_are_alike_are_told(model: Path, tmp_path: Path) -> None:
    rows = [{"id": str(number), "prompt": "a b"} for number in range(3)]
    source = tmp_path / "p.jsonl"
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    [trial] = trials(model, workloads=[{"name": "jsonl", "source": str(source)}], requests=3)
    assert remarks(session(model), trial) == [
        "prompts-repeated: 2 of 3 requests ask one of 1 prompts again"
    ]


def test_a_load_that_lasts_asks_again_by_design_unless_answers_are_learnt(model: Path) -> None:
    [trial] = trials(model, duration_s=1, requests=2)
    first, second = (request.id for request in session(model).requests(trial)[1][:2])
    ids = [first, second, f"{first}#2", f"{second}#2", f"{first}#3"]
    assert remarks(session(model), trial, ids) == []
    assert remarks(session(model, DRAFTS_FROM_ANSWERS), trial, ids) == [
        "prompts-repeated: 3 of 5 requests ask one of 2 prompts again, whose earlier answers "
        "drafts come from"
    ]


def test_it_is_a_remark_everywhere() -> None:
    assert "prompts-repeated" in REMARKS
