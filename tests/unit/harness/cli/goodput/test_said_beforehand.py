"""What a search says of an experiment before it begins, as `run` does; no engine is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import wiring
from harness.cli.goodput.search_run import _pinned
from harness.core.nouns import Slo
from harness.experiment.config import load_experiment
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
    pinned = _pinned(experiment, lambda _: True, SETTINGS)
    assert words in capsys.readouterr().err
    assert pinned.slo == Slo(ttft_ms=100)
