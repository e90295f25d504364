"""Heads trained here draft inside vLLM as they are: the demo's EAGLE-3, and Medusa made here."""

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
TRAINED = ("--workload", "gsm8k", "--rows", "20", "--epochs", "2", "--batch", "4")


def _command(*arguments: str) -> str:
    command = [sys.executable, "-m", "harness.cli.main", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3]
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("heads")
    printed = _command("train", "medusa", "--model", "demo", *TRAINED, "--out", f"{folder}/medusa")
    assert "held-out answers" in printed
    name = "vllm-speculative"
    experiment = {
        "name": "heads",
        "model": "demo",
        "dtype": "bfloat16",
        "reference": "vllm",
        "backends": [
            "vllm",
            {"name": name, "method": "eagle3"},
            {"name": name, "method": "medusa", "draft": f"{folder}/medusa"},
        ],
        "workloads": [{"name": "gsm8k", "max_new_tokens": 60}],
        "load": [{"kind": "closed", "concurrency": 4}],
        "requests": 12,
        "repeats": 1,
    }
    (folder / "e.yaml").write_text(yaml.safe_dump(experiment))
    _command("run", f"{folder}/e.yaml", "--out", f"{folder}/run")
    shown = _command("show", f"{folder}/run", "--json").splitlines()
    found = [json.loads(line) for line in shown]
    assert {row["status"] for row in found} == {"ok"}
    return {row["options"]["method"]: row for row in found if row["backend"] == name}


@pytest.mark.parametrize("method", ["eagle3", "medusa"])
def test_the_text_is_plain_decodings(method: str, rows: dict[str, dict[str, Any]]) -> None:
    assert rows[method]["consistency_ratio"] == 1.0


def test_the_demos_eagle3_is_accepted_as_its_card_says(rows: dict[str, dict[str, Any]]) -> None:
    from backends.checkpoints.draft_heads.check import BUNDLED
    from backends.checkpoints.draft_heads.files import ABOUT

    about = json.loads((BUNDLED["eagle3"] / ABOUT).read_text())
    told = about["report"]["held_out"]["gsm8k"]["tokens_per_step"]
    assert rows["eagle3"]["tokens_per_step"] == pytest.approx(told, rel=0.15)
