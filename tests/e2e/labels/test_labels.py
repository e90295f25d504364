"""An experiment of labels from the command line: run, shown, reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.harness.command import MAIN, decodebench, refused

EXPERIMENT = """
name: labels
model: demo-sentiment
dtype: float32
reference: classifier
backends:
  - {name: classifier, threads: 1}
  - {name: classifier-early-exit, threads: 1, threshold: 0.02}
  - {name: tetris-classifier, threads: 1, threshold: 0.02, layers: [3]}
workloads: [{name: sentiment, mix: "20:80"}]
load: [{kind: closed, concurrency: 4}]
requests: 24
slo: {e2e_ms: 60000}
repeats: 1
"""


STRICT = ("-W", "error", *MAIN)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    (folder / "labels.yaml").write_text(EXPERIMENT)
    asked = ("run", folder / "labels.yaml", "--out", folder / "run", "--again-share", "0")
    done = decodebench(*asked, start=STRICT)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "run"


def test_labels_are_scored_and_compared(run: Path) -> None:
    shown = decodebench("show", run, "--json", start=STRICT)
    assert shown.stderr == ""
    cells = {cell["backend"]: cell for cell in map(json.loads, shown.stdout.splitlines())}
    assert cells.keys() == {"classifier", "classifier-early-exit", "tetris-classifier"}
    for cell in cells.values():
        assert cell["accuracy"] >= 0.9
        assert cell["consistency_ratio"] >= 0.9
        assert cell["output_tokens"] == 0
        assert cell["e2e_s_p50"] == cell["ttft_s_p50"] > 0
        assert cell["speedup"] is None
    assert cells["classifier"]["early_exit_rate"] == 0
    assert cells["tetris-classifier"]["early_exit_rate"] > 0
    assert 0 < cells["classifier-early-exit"]["early_exit_rate"] < 1
    assert set(cells["tetris-classifier"]["by_stage"]) == {"1", "2"}
    assert cells["classifier-early-exit"]["goodput_req_per_s"] > 0


def test_the_page_is_written(run: Path) -> None:
    done = decodebench("report", run, start=STRICT)
    assert done.returncode == 0, done.stderr
    page = (run / "report.html").read_text()
    assert "tetris-classifier" in page
    assert "accuracy" in page


def test_a_text_backend_is_refused_before_anything_runs(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("demo-sentiment", "demo").replace(
        "{name: classifier, threads: 1}", "autoregressive"
    )
    lines = [
        line for line in text.splitlines() if "classifier-" not in line and "tetris" not in line
    ]
    (tmp_path / "labels.yaml").write_text(
        "\n".join(lines).replace("reference: classifier", "reference: autoregressive")
    )
    told = refused("run", "labels.yaml", "--out", "run", cwd=tmp_path)
    assert "answers with text, and workload 'sentiment' asks for labels" in told
    assert "Traceback" not in told
