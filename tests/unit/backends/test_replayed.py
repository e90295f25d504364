"""A replay of what was not recorded of its requests, or not to their end, is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import models
from backends.replayed import replay_remarks
from harness.cli import wiring
from harness.cli.asked.beforehand import replayed
from harness.cli.session import EngineSession
from harness.core.nouns import Trial
from harness.experiment.config import parse_experiment
from results.traces.file import write_trace
from tests.support.results.made_traces import made_row, made_trace
from tests.unit.harness.cli.test_session import Silent
from workloads.measured import load_prompts

DEMO = models.BUNDLED["demo"]
OTHERS = (
    "the trace has no request of workload 'jsonl', and what is replayed is that of "
    "cnn_dailymail, xsum, humaneval, gsm8k"
)
CUT = (
    "3 of 4 prompts of workload 'gsm8k' replay an answer that was cut as it was recorded, and ends "
    "there; 'ignore_eos: true' goes on"
)


def trial(backend: dict[str, Any], workload: Any = "gsm8k", **changes: Any) -> Trial:
    content = {
        "name": "x",
        "model": "demo",
        "backends": [backend],
        "reference": backend["name"],
        "workloads": [workload],
        "load": [{"kind": "closed", "concurrency": 1}],
        "requests": 4,
        "max_new_tokens": 16,
    }
    parsed = parse_experiment(content | changes, "x.yaml", wiring.known())
    return wiring.resolve(parsed).trials()[0]


def said(one: Trial) -> list[str]:
    """Before the run; the session's remarks are the same."""
    tokenizer = models.load_tokenizer(DEMO)
    found = replay_remarks(one, DEMO, load_prompts(one, tokenizer))
    session = EngineSession(Silent(), tokenizer, (), 0.0, directory=DEMO)
    assert session.remarks(one) == [f"replayed-otherwise: {line}" for line in found]
    prefix = f"backend '{one.backend}': option 'replay': "
    assert replayed([one, replace(one, repeat=1)]) == [prefix + line for line in found]
    return found


def own_prompts(folder: Path, more: str = "") -> dict[str, str]:
    source = folder / "p.jsonl"
    source.write_text("".join(f'{{"id": {n}, "prompt": "a b"{more}}}\n' for n in range(4)))
    return {"name": "jsonl", "source": str(source)}


def test_exits_and_lengths_of_other_workloads_are_told(tmp_path: Path) -> None:
    own = own_prompts(tmp_path)
    for name in ("own-early-exit", "adadecode", "autoregressive"):
        assert said(trial({"name": name, "replay": "demo"}, own)) == [OTHERS]
        assert said(trial({"name": name, "replay": "demo"})) == []
        assert said(trial({"name": name}, own)) == []
    rates = {"name": "adadecode", "replay": {"exits": {0.5: 0.5}}}
    assert said(trial(rates, own)) == []
    ignored = {"ignore_eos": True}
    assert said(trial({"name": "adadecode", "replay": "demo"}, own, **ignored)) == [OTHERS]
    assert said(trial({"name": "autoregressive", "replay": "demo"}, own, **ignored)) == []


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Three of whose four rows were cut at 9 tokens."""
    rows = (
        made_row("gsm8k-1"),
        *(made_row(f"gsm8k-{n}", answer_tokens=9, finished="length") for n in (2, 3, 4)),
    )
    write_trace(tmp_path / "t", made_trace(rows=rows))
    return str(tmp_path / "t")


def test_answers_that_were_cut_as_they_were_recorded_are_told(trace: str, tmp_path: Path) -> None:
    backend = {"name": "autoregressive", "replay": trace}
    source = tmp_path / "g.jsonl"
    source.write_text(
        "".join(f'{{"id": {n}, "question": "q{n}", "answer": "#### 1"}}\n' for n in (1, 2, 3, 4))
    )
    own = {"name": "gsm8k", "source": str(source)}
    assert said(trial(backend, own)) == [CUT]
    assert said(trial(backend, own, max_new_tokens=9)) == []
    assert said(trial(backend, own, ignore_eos=True)) == []
