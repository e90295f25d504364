"""A newcomer's backend: one file of its own and one line of the registry, in a copy of the tree."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.harness.command import ROOT, decodebench, printed

pytest.importorskip("transformers")
pytest.importorskip("torch")
pytestmark = pytest.mark.slow

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
    # other tests write compiled modules meanwhile, under names that are gone when they are copied
    compiled = "__pycache__"
    for name in ("harness", "backends", "workloads", "results", "reports"):
        more = ("target", "draft", "heads", "early_exit.d") if name == "backends" else ()
        ignored = shutil.ignore_patterns(compiled, *more)
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    heads = "backends/training/heads"
    shutil.copytree(ROOT / heads, root / heads, ignore=shutil.ignore_patterns(compiled))
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


def test_it_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 80


def test_it_runs_and_gives_the_reference_s_answers(tree: Path) -> None:
    file = tree / "newcomer.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT))
    there = {"PYTHONPATH": str(tree)}
    assert "threads" in printed("list", "backends", cwd=tree, env=there)
    printed("run", file, "--out", "run", cwd=tree, env=there)
    shown = printed("show", "run", "--json", cwd=tree, env=there)
    rows = list(map(json.loads, shown.splitlines()))
    (row,) = [row for row in rows if row["backend"] == "hf-generate"]
    assert (row["status"], row["n_completed"], row["n_errors"]) == ("ok", 6, 0)
    assert row["consistency_ratio"] == 1.0
    assert row["ttft_s_p50"] > 0
    assert row["tpot_s_p50"] > 0
    assert row["speedup"] is not None
    report = printed("report", "run", cwd=tree, env=there)
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
    done = decodebench(cwd=tree, start=("-c", code), env={"PYTHONPATH": str(tree)})
    assert done.returncode == 0, done.stderr
