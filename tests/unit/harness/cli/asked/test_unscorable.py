"""Answers that cannot be scored: found out before a run where that can be, and else no loss."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import models
from backends.scripted import ScriptedBackend
from harness.cli import run as running
from harness.cli import wiring
from harness.cli.asked import beforehand
from harness.cli.session import EngineSession
from harness.core.errors import UserError
from harness.core.nouns import Generation, Model, Trial
from harness.experiment.config import parse_experiment
from tests.support.tiny_llama import EOS_ID, write_tiny_llama
from workloads import scoring
from workloads.measured import load_prompts
from workloads.sandbox.probe import SandboxSupport

NO_SANDBOX = "sandbox: could not lock a program in on this machine: seccomp"


class MadeUpAnswers(ScriptedBackend):
    """Its answers are what the test makes up."""

    said: dict[str, str] = {}  # noqa: RUF012

    def texts(self) -> dict[str, str]:
        return self.said


def content(model: str, *workloads: str) -> dict[str, Any]:
    return {
        "name": "tiny",
        "model": model,
        "backends": ["scripted"],
        "workloads": list(workloads),
        "load": [{"kind": "closed", "concurrency": 1}],
        "requests": 3,
    }


def dry_run(folder: Path, *workloads: str) -> None:
    file = folder / "tiny.yaml"
    file.write_text(json.dumps(content("demo", *workloads)))
    running.run_experiment(file, out=folder / "run", only=None, fresh=False, dry_run=True)


def test_programs_are_refused_where_the_sandbox_does_not_hold_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def broken() -> SandboxSupport:
        asked.append("once")
        return SandboxSupport(problem=NO_SANDBOX)

    monkeypatch.setattr(beforehand, "support", broken)
    dry_run(tmp_path, "gsm8k")
    assert asked == []
    with pytest.raises(UserError) as raised:
        dry_run(tmp_path, "gsm8k", "humaneval")
    assert str(raised.value) == f"workload humaneval: cannot be scored here: {NO_SANDBOX}"
    assert asked == ["once"]


def test_answers_that_say_nothing_need_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beforehand, "support", lambda: SandboxSupport(problem=NO_SANDBOX))
    [trial] = parse_experiment(content("demo", "humaneval"), "x.yaml", wiring.known()).trials()
    beforehand.refuse_unscorable([replace(trial, model=Model("0.5b", shape=True))])
    beforehand.refuse_unscorable([replace(trial, options={"replay": "demo"})])
    with pytest.raises(UserError, match="workload humaneval: cannot be scored here"):
        beforehand.refuse_unscorable([trial])


def test_this_machine_can_score_programs(tmp_path: Path) -> None:
    dry_run(tmp_path, "humaneval")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UserError(NO_SANDBOX), NO_SANDBOX),
        (KeyError("x"), "KeyError: 'x'"),
        (MemoryError(), "MemoryError: "),
    ],
)
def test_what_scoring_raises_costs_the_scores_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise error

    model = write_tiny_llama(tmp_path)
    experiment = parse_experiment(content(str(model), "gsm8k"), "x.yaml", wiring.known())
    [trial] = wiring.resolve(experiment).trials()
    opened = EngineSession(ScriptedBackend({}), models.load_tokenizer(model), (EOS_ID,), 0.0)
    generations = answers(opened, trial)
    whole = opened.finish(trial, generations)
    assert opened.remarks(trial) == []
    monkeypatch.setattr(scoring, "score_all", failing)
    texts, scores = opened.finish(trial, generations)
    assert (texts, scores) == (whole[0], {})
    (remark,) = opened.remarks(trial)
    first = generations[0].request_id
    assert (
        remark == f"unscored: 3 without a score; on the answer to '{first}' scoring failed: {said}"
    )


def answers(opened: EngineSession, trial: Trial) -> list[Generation]:
    measured = opened.requests(trial)[1]
    return [Generation(one.id, 0, 0, 0, [1], [1], [5], "stop") for one in measured]


@pytest.mark.parametrize("api", [None, "chat"])
def test_prompts_that_end_in_a_thought_are_answered_behind_it(
    tmp_path: Path, api: str | None
) -> None:
    """But for chat servers, which may tell thoughts and answers apart themselves."""
    model = write_tiny_llama(tmp_path)
    tokenizer = models.load_tokenizer(model)
    tokenizer.chat_template = "{{ messages[0].content }}<think>\n"
    experiment = parse_experiment(content(str(model), "gsm8k"), "x.yaml", wiring.known())
    [trial] = wiring.resolve(experiment).trials()
    trial = replace(trial, options={"api": api} if api else {})
    backend = MadeUpAnswers({})
    opened = EngineSession(backend, tokenizer, (EOS_ID,), 0.0)
    asked = load_prompts(trial, tokenizer)
    backend.said = {one.request_id: one.row.data["answer"] for one in asked}
    _, scores = opened.finish(trial, answers(opened, trial))
    assert {one["exact_match"] for one in scores.values()} == {1.0 if api else 0.0}
