"""A newcomer's backend: one file of its own and one line of the registry, in a copy of the tree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("transformers")
pytest.importorskip("torch")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs/examples/hf_generate.py"
EXPERIMENT: dict[str, Any] = {
    "name": "newcomer",
    "model": "demo",
    "dtype": "float32",
    "reference": "autoregressive",
    "backends": ["autoregressive", {"name": "hf-generate", "threads": 1}],
    "workloads": [{"name": "gsm8k", "max_new_tokens": 24}],
    "load": [{"kind": "closed", "concurrency": 2}],
    "requests": 6,
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product folders with the example among the backends; the checkpoints are linked."""
    root = tmp_path_factory.mktemp("tree")
    for name in ("harness", "backends", "workloads", "results", "reports"):
        ignored = shutil.ignore_patterns("__pycache__", "target", "draft", "heads", "early_exit.d")
        shutil.copytree(ROOT / name, root / name, ignore=ignored if name == "backends" else None)
    shutil.copytree(ROOT / "backends/training/heads", root / "backends/training/heads")
    for name in ("target", "draft", "heads"):
        (root / "backends/demo" / name).symlink_to(ROOT / "backends/demo" / name)
    shutil.copy(EXAMPLE, root / "backends/hf_generate.py")
    line = next(
        x for x in EXAMPLE.read_text().splitlines() if x.strip().startswith('"hf-generate"')
    )
    registry = root / "backends/__init__.py"
    head = "BACKENDS: dict[str, str] = {\n"
    assert head in registry.read_text()
    registry.write_text(registry.read_text().replace(head, f"{head}{line}\n"))
    return root


def decodebench(tree: Path, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli.main", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(tree)},
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 80


def test_it_runs_and_gives_the_reference_s_answers(tree: Path) -> None:
    file = tree / "newcomer.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT))
    assert "threads" in decodebench(tree, "list", "backends")
    decodebench(tree, "run", file, "--out", "run")
    rows = [json.loads(x) for x in decodebench(tree, "show", "run", "--json").splitlines()]
    (row,) = [row for row in rows if row["backend"] == "hf-generate"]
    assert (row["status"], row["n_completed"], row["n_errors"]) == ("ok", 6, 0)
    assert row["consistency_ratio"] == 1.0
    assert row["ttft_s_p50"] > 0
    assert row["tpot_s_p50"] > 0
    assert row["speedup"] is not None
    report = decodebench(tree, "report", "run")
    assert "report.html" in report


def test_requests_that_do_not_fit_and_a_reset(tree: Path) -> None:
    code = """
from backends import open_backend
from backends.checkpoints import models
from harness.core.nouns import Model, Request
model = Model("demo", dtype="float32")
backend = open_backend("hf-generate", models.resolve(model), model, {})
backend.submit(Request("none", (), 4))
backend.submit(Request("long", (5, 6, 7), 400, ignore_eos=True))
backend.submit(Request("next", (5, 6, 7), 4, ignore_eos=True))
found = backend.poll()
while not any(c.request_id == "long" for c in found):
    backend.wait(0.01)
    found += backend.poll()
assert [c.error for c in found if c.request_id == "none"] == ["the prompt is empty"]
backend.reset()
assert backend.poll() == []
backend.submit(Request("after", (5, 6, 7), 4, ignore_eos=True))
found = []
while not found or found[-1].finished is None:
    backend.wait(0.01)
    found += backend.poll()
assert {c.request_id for c in found} == {"after"}
assert [c.finished for c in found] == [None, None, None, "length"]
backend.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
