"""Every kernel compiles to Hopper's machine code, on machines without a GPU too."""

from __future__ import annotations

import ast
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from backends.engine import sampling

ROOT = Path(__file__).parents[2]
SHARED_BYTES = 227 * 1024
"""What one program may have on an H100."""
SAMPLING = ("highest_kernel", "race_kernel", "settle_kernel")


def unsigned(value: float) -> str:
    """The bits of a float64, sign aside (the compiler may subtract instead)."""
    return struct.pack(">d", abs(value)).hex().upper()


def constants() -> set[str]:
    """What the series of sampling are made of, to the last bit."""
    named = (
        *(sampling._LOG_2, sampling._LOG_2_HIGH, sampling._LOG_2_LOW, sampling._LOG2_E),
        *(sampling._ROUNDING, sampling._HALF_ROOT_2, sampling._LEAST),
    )
    series = [1.0 / n for n in (*range(3, 23, 2), *sampling._FACTORIALS[2:])]
    return {unsigned(float(value)) for value in (*named, *series)}


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
        timeout=3000,
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
        # in the cache or aside, keys and values go through the same steps in the same order
        (plain, of_trees) = [
            line["arithmetic"] for line in mine if line["kernel"] == "attention_split_kernel"
        ]
        assert plain == of_trees
        assert len(plain) > 100
        exact = [line for line in mine if line["kernel"] in SAMPLING]
        assert not any(line["fused"] for line in exact)
        for line in exact:
            found = {unsigned(*struct.unpack(">d", bytes.fromhex(x))) for x in line["doubles"]}
            assert line["kernel"] != "race_kernel" or constants() <= found
