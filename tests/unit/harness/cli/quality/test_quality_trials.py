"""Which prompts are asked for quality alone, of whom, and how many at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import wiring
from harness.cli.quality.more_prompts import quality_trials
from harness.core.errors import UserError
from harness.core.nouns import Trial
from harness.experiment.config import parse_experiment
from workloads.measured import load_rows, more_rows

BASE: dict[str, Any] = {
    "name": "x",
    "model": "demo",
    "backends": ["scripted"],
    "workloads": ["gsm8k"],
    "load": [{"kind": "closed", "concurrency": [2, 16]}],
    "requests": 4,
    "quality_requests": 10,
    "repeats": 3,
}


def asked(only: str | None = None, **changes: Any) -> list[Trial]:
    data = {key: value for key, value in {**BASE, **changes}.items() if value is not None}
    experiment = parse_experiment(data, "f.yaml", wiring.known())
    return quality_trials(wiring.resolve(experiment), lambda t: only in (None, t.backend))


def test_the_rest_of_the_prompts_once_for_each_backend() -> None:
    found = asked(backends=["scripted", {"name": "scripted", "itl_s": 0.001}])
    assert [(t.backend, t.repeat, t.requests) for t in found] == [("scripted", 0, 6)] * 2
    own, workload = more_rows(found[0].workload, 0, 6, None), found[0].workload
    timed = load_rows(workload, 0, 4, None)
    every = load_rows(workload, 0, 10, None)
    assert [row.id for row in timed + own] == [row.id for row in every]
    assert not asked(only="vllm")


def test_a_mix_is_kept_and_no_prompt_is_asked_twice() -> None:
    (trial,) = asked(workloads=[{"name": "gsm8k", "mix": "50:50"}])
    own = {row.id for row in more_rows(trial.workload, 0, trial.requests, None)}
    timed = {row.id for row in load_rows(trial.workload, 0, 4, None)}
    assert len(own) == 6
    assert not own & timed


def test_many_at_once_but_where_a_batch_decides() -> None:
    backends = ["scripted", "vllm-early-exit", {"name": "vllm-early-exit", "measure": "never"}]
    assert [t.load.concurrency for t in asked(backends=backends)] == [16, 2, 16]
    open_loop = asked(backends=backends, load=[{"kind": "poisson", "rate": 1}])
    assert [t.load.concurrency for t in open_loop] == [8, 1, 8]


def test_nothing_is_asked_that_no_score_judges_or_the_loads_ask(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not asked(quality_requests=None)
    assert capsys.readouterr().err == ""
    assert not asked(workloads=["synthetic"])
    assert "workload synthetic: its answers have no score" in capsys.readouterr().err
    assert not asked(quality_requests=4)
    assert "quality_requests: 4: the loads ask 4 prompts anyway" in capsys.readouterr().err
    replayed = {"name": "autoregressive", "replay": "demo"}
    assert [t.backend for t in asked(backends=["scripted", replayed])] == ["scripted"]


def test_a_source_with_fewer_prompts_gives_those_that_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.jsonl"
    rows = [{"id": n, "prompt": f"Say {n}.", "answer": "x", "scorer": "exact"} for n in range(7)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (trial,) = asked(workloads=[{"name": "jsonl", "source": str(file)}])
    assert trial.requests == 3
    assert "workload jsonl: has 7 of the 10 prompts of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quality_requests": 0}, "f.yaml: quality_requests: expected a whole number of at least"),
        ({"quality_requests": "all"}, "f.yaml: quality_requests: expected a whole number"),
        (
            {"workloads": [{"name": "gsm8k", "rows": 8}]},
            "f.yaml: quality_requests: expected at most the 8 'rows' of workload gsm8k, got 10",
        ),
        ({"load": ["sweep"]}, "f.yaml: quality_requests: expected a load beside the sweep"),
        ({"quality_requests": 10**6}, "1,000,000 prompts"),
    ],
)
def test_bad_input_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        asked(**changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
