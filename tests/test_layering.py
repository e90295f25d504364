"""Imports point one way: read from the source, so that imports inside functions count too."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("harness", "backends", "workloads", "results", "reports")
JOINTS = {"cli", "cli_calibrate", "cli_train", "wiring", "session", "running", "doctor", "selftest"}
"""Modules of harness/ that may import every folder."""
HEAVY = {"torch", "vllm", "transformers", "ray", "matplotlib", "pandas", "datasets", "pyarrow"}

ALLOWED = {
    "harness": {"harness"},
    "workloads": {"workloads", "harness.core", "harness.files"},
    "backends": {"backends", "workloads", "harness.core", "harness.files"},
    "results": {"results", "harness.core", "harness.files"},
    "reports": {"reports", "results", "harness.core"},
}
CORE_ONLY = {
    *("trial", "scheduling", "checks", "machine", "meters", "gpu", "environment", "section"),
    *("tuning", "truth_stream", "files", "strict_yaml"),
    *("sweep", "fleet", "engine_process", "messages", "child"),
    *("config", "grid", "limits", "loads", "resolved"),
}
"""Modules of harness/ that import nothing of the project but the core and one another."""


def modules() -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert len(found) > 20
    return found


def imports(tree: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            module = node.module or ""
            yield from ((f"{module}.{alias.name}", node) for alias in node.names)


def own(name: str) -> bool:
    return name.split(".")[0] in FOLDERS


def allowed(path: Path, name: str) -> bool:
    folder, stem = path.relative_to(ROOT).parts[0], path.stem
    if folder == "harness" and stem in JOINTS:
        return True
    if folder == "backends" and path.relative_to(ROOT).parts[1] in ("engine", "kernels"):
        return name.startswith(("backends.engine", "backends.kernels"))
    return any(name == root or name.startswith(root + ".") for root in ALLOWED[folder])


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    names = {name for name, _ in imports(ast.parse(path.read_text())) if own(name)}
    assert [name for name in sorted(names) if not allowed(path, name)] == []


@pytest.mark.parametrize("stem", sorted(CORE_ONLY))
def test_the_experiment_core_knows_no_other_folder(stem: str) -> None:
    tree = ast.parse((ROOT / "harness" / f"{stem}.py").read_text())
    names = {name for name, _ in imports(tree) if own(name)}
    parts = {name.split(".")[1] for name in names if name.startswith("harness.")}
    assert [name for name in names if not name.startswith("harness.")] == []
    assert parts <= CORE_ONLY | {"core"}


def test_core_imports_the_standard_library_only() -> None:
    tree = ast.parse((ROOT / "harness/core.py").read_text())
    roots = {name.split(".")[0] for name, _ in imports(tree)}
    assert roots <= sys.stdlib_module_names


def test_files_imports_the_standard_library_and_core_only() -> None:
    tree = ast.parse((ROOT / "harness/files.py").read_text())
    names = {name for name, _ in imports(tree)}
    own_names = {name for name in names if own(name)}
    assert {name.split(".")[0] for name in names - own_names} <= sys.stdlib_module_names
    assert own_names == {"harness.core.UserError"}


@pytest.mark.parametrize(
    "module",
    [
        "harness.cli",
        "harness.sweep",
        "harness.trial",
        "backends",
        "workloads",
        "results",
        "reports",
    ],
)
def test_heavy_libraries_wait_until_they_are_used(module: str) -> None:
    code = f"import sys, {module}; print(' '.join(m for m in sys.modules if '.' not in m))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert set(done.stdout.split()) & HEAVY == set()
