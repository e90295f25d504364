"""What a search says of an experiment before it begins, as `run` does; no engine is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import wiring
from harness.cli.goodput.probing import Prober, systems
from harness.cli.goodput.search_run import _pinned
from harness.core.nouns import Load, Slo
from harness.experiment.config import load_experiment
from results.store.folder import Store
from tests.support.results.virtual_server import SETTINGS


@pytest.mark.parametrize(
    ("options", "workload", "words"),
    [
        ({"max_model_len": 90}, "gsm8k", "bound to fail"),
        ({"replay": "demo"}, "jsonl", "the trace has no request of workload 'jsonl'"),
    ],
)
def test_prompts_that_fail_and_replays_that_end_early(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, Any],
    workload: str,
    words: str,
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"What is {n}?"}) + "\n" for n in range(30)))
    source = {"source": str(rows)} if workload == "jsonl" else {}
    file = tmp_path / "x.yaml"
    content = {
        "name": "x",
        "model": "demo",
        "backends": [{"name": "autoregressive", **options}],
        "workloads": [{"name": workload, "max_new_tokens": 40, **source}],
        "load": [{"kind": "closed", "concurrency": 1}],
        "slo": {"ttft_ms": 100},
        "requests": 20,
    }
    file.write_text(json.dumps(content))
    experiment = load_experiment(file, wiring.known())
    pinned = _pinned(experiment, lambda _: True, SETTINGS, set())
    assert words in capsys.readouterr().err
    assert pinned.slo == Slo(ttft_ms=100)


@pytest.mark.parametrize("longer", ["first", "later"])
def test_what_is_odd_about_rows_is_said_once_whichever_draw_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], longer: str
) -> None:
    """A probe draws more rows than the file asks for: one may be the first that is cut."""
    rows = tmp_path / "rows.jsonl"
    file = tmp_path / "x.yaml"
    content = {
        "name": "x",
        "model": "demo",
        "backends": ["scripted"],
        "workloads": [{"name": "jsonl", "source": str(rows), "max_new_tokens": 5}],
        "load": [{"kind": "closed", "concurrency": 1}],
        "slo": {"ttft_ms": 100},
        "requests": 2,
    }
    file.write_text(json.dumps(content))
    rows.touch()
    experiment = load_experiment(file, wiring.known())
    for cut in range(20):
        made = [
            {"prompt": f"What is {n}?", "output_tokens": 9 if n == cut else 3} for n in range(20)
        ]
        rows.write_text("".join(json.dumps(row) + "\n" for row in made))
        said = set[str]()
        _pinned(experiment, lambda _: True, SETTINGS, said)
        beforehand = capsys.readouterr().err.count(" cuts ")
        if beforehand == (longer == "first"):
            break
    with Prober(Store(tmp_path / "s"), experiment, lambda _: None, told=said) as prober:
        [system] = systems(experiment, None)
        for number, requests in enumerate((12, 16, 20)):
            prober.trial(system, Load("poisson", rate=1.0), number, requests)
    meanwhile = capsys.readouterr().err.count(" cuts ")
    assert (beforehand, meanwhile) == ((1, 0) if longer == "first" else (0, 1))
