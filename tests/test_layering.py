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
HEAVY = {"torch", "vllm", "transformers", "ray", "matplotlib", "pandas", "datasets", "pyarrow"}
MOST_FILES, MOST_LINES = 12, 300

RULES = {
    "harness/core": {"harness.core"},
    "harness/measure": {"harness.core", "harness.measure"},
    "harness/experiment": {"harness.core", "harness.experiment"},
    "harness/cli": set(FOLDERS),
    "workloads": {"harness.core", "workloads"},
    "backends": {"harness.core", "workloads", "backends", "results.traces"},
    "backends/engine": {"backends.engine", "backends.kernels"},
    "backends/engine/costs": {"harness.core.pass_costs", "backends.engine"},
    "backends/kernels": {"harness.core.ceilings", "backends.engine", "backends.kernels"},
    "backends/kernels/cpu": {"harness.core.files", "backends.engine", "backends.kernels"},
    "results": {"harness.core", "results"},
    "results/traces": {"harness.core", "results.traces"},
    "reports": {"harness.core", "results", "reports"},
}
"""What of this project the modules of a folder may import; the deepest folder's rule holds."""


def modules() -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert len(found) > 20
    return found


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own(name: str) -> bool:
    return name.split(".")[0] in FOLDERS


def rule(path: Path) -> set[str]:
    inside = [folder for folder in path.parents if folder.is_relative_to(ROOT)]
    found = [RULES.get(str(folder.relative_to(ROOT))) for folder in inside]
    return next(names for names in found if names is not None)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    if path.parent == ROOT / "harness":
        assert not list(imports(path))
        return
    allowed = rule(path)
    names = sorted(set(filter(own, imports(path))))
    assert [n for n in names if not any(f"{n}.".startswith(f"{a}.") for a in allowed)] == []


@pytest.mark.parametrize("path", [*(ROOT / "harness/core").rglob("*.py")], ids=lambda p: p.name)
def test_core_needs_the_standard_library_only(path: Path) -> None:
    foreign = {name.split(".")[0] for name in imports(path) if not own(name)}
    stemmer = {"rouge_score"} if path.name == "rouge.py" else set()
    assert foreign <= sys.stdlib_module_names | stemmer


def all_files() -> list[Path]:
    return modules() + [p for name in ("tests", "benchmarks") for p in (ROOT / name).rglob("*.py")]


def test_no_folder_has_grown_flat() -> None:
    files = all_files()
    counts = {folder: len(list(folder.glob("*.py"))) for folder in {p.parent for p in files}}
    assert {str(f.relative_to(ROOT)): n for f, n in counts.items() if n > MOST_FILES} == {}


def test_no_file_has_grown_long() -> None:
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in all_files()}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES} == {}


def test_one_name_means_one_class() -> None:
    homes: dict[str, list[str]] = {}
    for path in all_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


@pytest.mark.parametrize(
    "module",
    [
        "harness.cli.main",
        "harness.measure.sweep",
        "harness.measure.load_loop",
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
