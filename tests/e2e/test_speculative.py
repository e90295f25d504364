"""Speculative decoding on both engines, through the command: same text, same counts."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]
WIDE = {"window": 7, "ngram": 5, "guesses": 7}
LOOKAHEAD = {"name": "speculative", "method": "lookahead", "drafts": 4, **WIDE}
SUBLAYERS = {"name": "speculative", "method": "swift", "drafts": 3, "threshold": 0.5}
EXPERIMENT = {
    "name": "drafts",
    "model": "demo",
    "dtype": "bfloat16",
    "reference": "vllm",
    "backends": [
        "vllm",
        "autoregressive",
        {"name": "vllm-speculative", "drafts": 3},
        {"name": "vllm-speculative", "method": "ngram"},
        {"name": "speculative", "drafts": 3, "threshold": 0.0},
        {"name": "speculative", "method": ["draft_model", "prompt_lookup", "layerskip"]},
        {"name": "vllm-speculative", "method": "eagle3", "drafts": 3},
        {"name": "speculative", "method": "eagle3", "drafts": 3, "threshold": 0.0},
        {"name": "speculative", "method": "eagle3"},
        SUBLAYERS,
        LOOKAHEAD,
    ],
    "workloads": [{"name": "gsm8k", "max_new_tokens": 60}, {"name": "xsum", "max_new_tokens": 7}],
    "load": [{"kind": "closed", "concurrency": [1, 5]}],
    "requests": 10,
    "repeats": 1,
}
"""Answers of xsum end at their limit, in the middle of drafts."""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("drafts")
    (folder / "e.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    _command("run", str(folder / "e.yaml"), "--out", str(folder / "run"))
    _command("report", str(folder / "run"))
    assert 'id="drafts"' in (folder / "run" / "report.html").read_text()
    return [
        json.loads(line) for line in _command("show", str(folder / "run"), "--json").splitlines()
    ]


def _command(*arguments: str) -> str:
    command = [sys.executable, "-m", "harness.cli.main", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _drafted(row: dict[str, Any]) -> float:
    """All drafts: those of the steps, of which there were as many as tokens over tokens a step."""
    tokens = row["output_tokens"] - row["n_completed"]
    return float(row["drafts_per_step"] * tokens / row["tokens_per_step"])


def drafting(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if "speculative" in row["backend"]]


def test_every_answer_is_plain_decodings(rows: list[dict[str, Any]]) -> None:
    assert {row["status"] for row in rows} == {"ok"}
    assert len(drafting(rows)) == 44
    for row in drafting(rows):
        metric = "consistency_native" if row["backend"] == "speculative" else "consistency_ratio"
        assert row[metric] == 1.0, (row["backend"], row["options"], row["workload"])


def test_counts_add_up(rows: list[dict[str, Any]]) -> None:
    for row in drafting(rows):
        positions = row["drafts_by_position"]
        if positions is None:
            assert row["tokens_per_step"] == 1.0, "drafts did not pay"
            continue
        accepted = sum(counts["accepted"] for counts in positions.values())
        judged = [positions[place]["judged"] for place in sorted(positions, key=int)]
        assert judged == sorted(judged, reverse=True)
        assert row["acceptance_rate"] <= 1
        assert row["tokens_per_step"] >= 1
        assert accepted == pytest.approx(row["acceptance_rate"] * _drafted(row))
        assert 0 <= row["overhead_share"] < 1
        if row["options"].get("method") == "layerskip":
            assert row["draft_share"] is None, "its drafts are the model's own passes"
        else:
            assert 0 < row["draft_share"] < 1


@pytest.mark.parametrize("method", ["draft_model", "eagle3"])
def test_both_engines_count_the_same_work(rows: list[dict[str, Any]], method: str) -> None:
    """The same draft model or head, three drafts each time: the same steps, whatever else
    differs."""
    for workload in ("gsm8k", "xsum"):
        for load in ("closed c=1", "closed c=5"):
            steps = [
                row["tokens_per_step"]
                for row in drafting(rows)
                if (row["workload"], row["load"]) == (workload, load)
                and row["options"].get("drafts") == 3
                and row["options"].get("method", "draft_model") == method
            ]
            assert len(steps) == 2
            assert steps[0] == pytest.approx(steps[1], rel=0.05)
