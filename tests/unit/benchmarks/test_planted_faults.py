"""The tool that plants faults, on a tree of two files; and that its own lists fit today's code."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.soundness import planted_faults
from benchmarks.soundness.planted_faults import FOUND, MISSED, STALE, UNJUDGED, Fault

LIST = """
- file: area.py
  tests: [test_area.py]
  faults:
    - {what: a sum for a product, old: a * b, new: a + b}
    - {what: no negative sides, old: a * b, new: abs(a * b)}
"""
TEST = "import area\n\ndef test_area():\n    assert area.area(3, 2) == 6\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A git checkout: a file, its test, and a file that git ignores."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "area.py").write_text("def area(a, b):\n    return a * b\n")
    (root / "test_area.py").write_text(TEST)
    (root / ".gitignore").write_text("ignored\n")
    (root / "ignored").write_text("large")
    (root / "faults").mkdir()
    (root / "faults" / "shapes.yaml").write_text(LIST)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


@pytest.fixture
def faults(tree: Path) -> list[Fault]:
    return planted_faults.read_faults(tree / "faults")


def test_a_fault_is_found_or_not(
    tree: Path, faults: list[Fault], capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = planted_faults.try_all(tree, faults, 2)
    assert [outcome.verdict for outcome in outcomes] == [FOUND, MISSED]
    assert outcomes[0].detail == "test_area.py::test_area"
    assert (tree / "area.py").read_text() == "def area(a, b):\n    return a * b\n"
    assert not planted_faults.report(outcomes)
    assert "shapes          1 of    2 found, 50.0%\n" in capsys.readouterr().out
    assert planted_faults.report(outcomes[:1])


def test_a_fault_whose_text_is_gone_is_stale(tree: Path, faults: list[Fault]) -> None:
    gone, twice = replace(faults[0], old="a / b"), replace(faults[0], old="a")
    outcomes = [planted_faults.try_fault(tree, fault, set()) for fault in (gone, twice)]
    assert [outcome.verdict for outcome in outcomes] == [STALE, STALE]
    assert outcomes[0].detail == "its old text stands 0 times in area.py"
    many = [planted_faults.FaultOutcome(faults[0], FOUND, "")] * 99
    assert not planted_faults.report([*many, outcomes[0]])


def test_tests_that_fail_anyway_judge_nothing(tree: Path, faults: list[Fault]) -> None:
    (tree / "test_area.py").write_text(TEST.replace("6", "7"))
    (outcome,) = planted_faults.try_all(tree, faults[:1], 1)
    assert outcome.verdict == UNJUDGED
    assert not planted_faults.report([outcome])


def test_a_fault_that_never_ends_is_found(tree: Path) -> None:
    (tree / "test_area.py").write_text("def test_area():\n    while True:\n        pass\n")
    assert planted_faults.run_tests(tree, ["test_area.py"], 0.5) == "time-out after 0.5 s"


def test_what_git_ignores_is_not_copied(tree: Path, tmp_path: Path) -> None:
    copy = planted_faults.copy_tree(tree, tmp_path / "copy")
    assert sorted(p.name for p in copy.iterdir()) == [
        *(".gitignore", "area.py", "faults", "test_area.py")
    ]


def test_the_faults_fit_the_code() -> None:
    faults = planted_faults.read_faults(planted_faults.LISTS)
    assert sum(fault.group != "told" for fault in faults) >= 60
    for fault in faults:
        text = (planted_faults.ROOT / fault.file).read_text(encoding="utf-8")
        planted = fault.planted(text)
        assert planted is not None, f"stale: {fault}"
        assert planted != text
        if fault.file.endswith(".py"):
            compile(planted, fault.file, "exec")
        for name in fault.tests:
            assert (planted_faults.ROOT / name.partition("::")[0]).is_file(), name


def test_the_faults_are_listed_by_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    assert planted_faults.main(["--list", "--only", "told harness/measure/child"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "told: harness/measure/child.py: no warm-up" in lines
    assert all(line.startswith("told: harness/measure/child.py: ") for line in lines)
    assert planted_faults.main(["--only", "no such thing"]) == 2
