"""Plant faults in a copy of this tree, one at a time: do the tests nearest to them find each?

    python benchmarks/soundness/planted_faults.py [--only PATTERN] [--jobs N] [--list]

The faults are written by hand, in `benchmarks/faults/*.yaml`: most random changes of a program
change nothing that anybody could see. A time-out counts as found. A fault whose old text stands no
longer exactly once in its file is stale and has to be written anew. Exit code 1: a stale fault,
tests that fail without one, or a share below 95%.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml

ROOT = Path(__file__).resolve().parents[2]
LISTS = ROOT / "benchmarks" / "faults"
AIM = 0.95
LIMIT_S = 300.0
FOUND, MISSED, STALE, UNJUDGED = "found", "NOT FOUND", "STALE", "CANNOT BE JUDGED"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Fault:
    """One change of one file, and the test files nearest to it."""

    group: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted(self, text: str) -> str | None:
        """The file's text with the fault; None when the old text does not stand there once."""
        return text.replace(self.old, self.new) if text.count(self.old) == 1 else None


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    fault: Fault
    verdict: str
    detail: str


def read_faults(folder: Path) -> list[Fault]:
    """All faults of the lists in `folder`, each a list of files with their tests and faults."""
    return [
        Fault(path.stem, one["what"], part["file"], one["old"], one["new"], tuple(part["tests"]))
        for path in sorted(folder.glob("*.yaml"))
        for part in yaml.safe_load(path.read_text(encoding="utf-8"))
        for one in part["faults"]
    ]


def run_tests(tree: Path, files: Sequence[str], limit_s: float = LIMIT_S) -> str | None:
    """The first test that fails in the tree, or what else went wrong; None when all pass."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    # a cached file would be taken for the new one where size and second are equal
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    # runs side by side would else wait for each other's threads
    environment["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *files]
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"time-out after {limit_s:g} s"
    if process.returncode == 0:
        return None
    failed = _FAILED.search(printed.decode(errors="replace"))
    return failed[1] if failed else f"pytest ended with {process.returncode}"


def copy_tree(root: Path, target: Path) -> Path:
    """Copy what git tracks, and new files that it does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)
    return target


def try_fault(tree: Path, fault: Fault, broken: set[str]) -> FaultOutcome:
    """Plant the fault, run its tests, take it out again. `broken`: test files that fail anyway."""
    path = tree / fault.file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    planted = fault.planted(text)
    if planted is None:
        count = text.count(fault.old)
        return FaultOutcome(fault, STALE, f"its old text stands {count} times in {fault.file}")
    if failing := broken.intersection(fault.tests):
        return FaultOutcome(fault, UNJUDGED, f"fails without it: {', '.join(sorted(failing))}")
    path.write_text(planted, encoding="utf-8")
    try:
        killer = run_tests(tree, fault.tests)
    finally:
        path.write_text(text, encoding="utf-8")
    return FaultOutcome(fault, FOUND if killer else MISSED, killer or " ".join(fault.tests))


def in_trees(
    trees: Sequence[Path], do: Callable[[Path, Item], Result], items: Iterable[Item]
) -> list[Result]:
    """`do` for each item, as many at once as there are trees, each in one that no other uses."""
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def one(item: Item) -> Result:
        tree = free.get()
        try:
            return do(tree, item)
        finally:
            free.put(tree)

    with ThreadPoolExecutor(len(trees)) as pool:
        return list(pool.map(one, items))


def try_all(root: Path, faults: Sequence[Fault], jobs: int) -> list[FaultOutcome]:
    """Try each fault, `jobs` at once, in copies of the tree at `root`."""
    with tempfile.TemporaryDirectory(prefix="planted-faults-") as folder:
        data = root.parent / "shared"
        if data.is_dir():
            (Path(folder) / "shared").symlink_to(data)
        trees = [copy_tree(root, Path(folder) / f"tree-{number}") for number in range(jobs)]
        files = sorted({name for fault in faults for name in fault.tests})
        failing = in_trees(trees, lambda tree, name: run_tests(tree, [name]), files)
        broken = {name for name, why in zip(files, failing, strict=True) if why}

        def tell(tree: Path, fault: Fault) -> FaultOutcome:
            outcome = try_fault(tree, fault, broken)
            print(f"{outcome.verdict}: {fault.file}: {fault.what} ({outcome.detail})", flush=True)
            return outcome

        return in_trees(trees, tell, faults)


def report(outcomes: Sequence[FaultOutcome]) -> bool:
    """Print what was found by list and in all; whether that is enough."""
    groups = sorted({outcome.fault.group for outcome in outcomes})
    print()
    for group in groups:
        print(_line(group, [o for o in outcomes if o.fault.group == group]))
    print(_line("all", outcomes))
    found = sum(outcome.verdict == FOUND for outcome in outcomes)
    judged = all(outcome.verdict in (FOUND, MISSED) for outcome in outcomes)
    return judged and found >= AIM * len(outcomes)


def _line(name: str, outcomes: Sequence[FaultOutcome]) -> str:
    found = sum(outcome.verdict == FOUND for outcome in outcomes)
    return f"{name:12} {found:4} of {len(outcomes):4} found, {found / len(outcomes):.1%}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Do the tests find faults planted by hand?")
    parser.add_argument("--only", default="", help="a pattern to find in list, file and fault")
    parser.add_argument("--jobs", type=int, default=2, help="so many at once")
    parser.add_argument("--list", action="store_true", help="name the faults, try none")
    asked = parser.parse_args(arguments)
    faults = [
        fault
        for fault in read_faults(LISTS)
        if re.search(asked.only, f"{fault.group} {fault.file} {fault.what}")
    ]
    if not faults:
        print(f"no fault matches {asked.only!r}", file=sys.stderr)
        return 2
    if asked.list:
        for fault in faults:
            print(f"{fault.group}: {fault.file}: {fault.what}")
        return 0
    return 0 if report(try_all(ROOT, faults, asked.jobs)) else 1


if __name__ == "__main__":
    sys.exit(main())
