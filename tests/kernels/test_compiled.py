"""Every kernel compiles to Hopper's machine code, on machines without a GPU too."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED_BYTES = 227 * 1024
"""What one program may have on an H100."""


def kernels() -> set[str]:
    """Names of all Triton kernels; what they call is named otherwise."""
    found = set()
    for path in (ROOT / "backends/kernels").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel"):
                found.add(node.name)
    return found


@pytest.mark.slow
def test_every_kernel_compiles_for_hopper(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("compile_for_hopper.py"))],
        env=environment,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()][:-1]
    for dtype in ("bfloat16", "float16", "float32"):
        mine = [line for line in lines if line["dtype"] == dtype]
        assert {line["kernel"] for line in mine} == kernels()
        assert max(line["shared_bytes"] for line in mine) <= SHARED_BYTES
        products = [
            line for line in mine if line["kernel"] in ("exit_head_kernel", "logits_kernel")
        ]
        assert all(line["wgmma"] == (dtype != "float32") for line in products)
