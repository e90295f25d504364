"""The other version of the code: a commit of this repository, or a checkout somewhere."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness.core.closure import PACKAGES, ROOT, digest, written
from harness.core.errors import UserError
from harness.core.files import cache_folder, rename_folder
from harness.core.nouns import Trial, canonical_json
from harness.measure.machine.environment import git
from harness.measure.versions.version import CodeVersion

CHILD = Path("harness/measure/child.py")
"""What a checkout has to have."""
KEPT_DAYS = 30
"""An unpacked commit that nobody used for so long is removed."""
PROBE = """
import dataclasses, json, sys, typing
from harness.cli.session import open_session
from harness.core.nouns import Trial, TrialRecord
from harness.measure.load_loop import LoadProgress
from harness.measure.machine import environment
from harness.measure.messages import NoResult, Ready, TrialJob
shapes = {}
def follow(kind):
    name = f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', '')}"
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and name not in shapes:
        shapes[name] = [field.name for field in dataclasses.fields(kind)]
        for field in typing.get_type_hints(kind).values():
            follow(field)
    for part in typing.get_args(kind):
        follow(part)
for sent in (Trial, TrialJob, Ready, LoadProgress, TrialRecord, NoResult):
    follow(sent)
print(json.dumps({"path": sys.path, "environment": environment.environment(), "shapes": shapes}))
"""
"""Run by either version: what it imports from, what it says of the machine, and the fields of all
that goes through a child's pipe (`harness.measure.messages`), by the names that a pickle has."""
_PROBE_LIMIT_S = 60
_git = partial(git, ROOT, timeout_s=30.0)


@dataclass(frozen=True, slots=True)
class Checkout:
    """Another version, ready to be run."""

    version: CodeVersion
    commit: str | None
    """12 hex digits, with "+" for changed files; None where no git tells it."""
    environment: Mapping[str, Any]
    """As its own `harness.measure.machine.environment` says it."""
    content: str
    """A digest of everything that it could run."""
    files: Mapping[Path, tuple[int, int] | None]
    """All that, and when it was last written."""

    def of(self, trial: Trial) -> str:
        """What pins a trial by this version (as `harness.cli.pins.Pins` does it for ours): the
        whole of it, since what a trial reaches there is not ours to tell."""
        return self.content

    def parts(self, trial: Trial) -> dict[str, str]:
        """`of`, by a name that a user can read."""
        return {f"version {self.commit or self.version.root.name}": self.content}

    def edited(self, trial: Trial) -> str:
        """What of it was edited since it was found, in a line; empty where nothing was."""
        root = self.version.root
        names = [str(path) for path, seen in self.files.items() if written(path) != seen]
        if not names or _digest(root) == self.content:
            return ""
        return f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)} changed"


def find_checkout(named: str) -> Checkout:
    """The version that `named` means: a git reference of this checkout, else a folder with another
    checkout. In the folder's own ``.venv`` where it has one, so that other packages can be told
    from other code; else by the interpreter that runs here.

    Raises `UserError` where there is no such version, and for one whose trials have other fields
    than ours, so that its engines cannot be driven from here.
    """
    commit = _git("rev-parse", "--verify", "--quiet", f"{named}^{{commit}}")
    if commit:
        root, python = _unpacked(commit), sys.executable
    else:
        root = _folder(named)
        own = root / ".venv" / "bin" / "python"
        python = str(own) if own.is_file() else sys.executable
    told, ours = _probe(root, python, named), _probe(ROOT, sys.executable, "this version")
    _check_fields(named, told["shapes"], ours["shapes"])
    short = commit[:12] if commit else told["environment"].get("commit")
    here = ROOT.resolve()
    rest = [path for path in told["path"] if path and Path(path).resolve() not in (here, root)]
    files = {path: written(path) for package in PACKAGES for path in _paths(root / package)}
    return Checkout(
        CodeVersion(root, python, (str(root), *rest)),
        short,
        {**told["environment"], "commit": short},
        _digest(root),
        files,
    )


def same_files(one: Path, other: Path) -> bool:
    """Whether two folders hold files of the same names and contents."""
    return _files(one) == _files(other)


def _files(folder: Path) -> dict[str, str]:
    """Digests by path below the folder."""
    return {str(path.relative_to(folder)): digest(path.read_bytes()) for path in _paths(folder)}


def _paths(folder: Path) -> list[Path]:
    """All files below it that Python did not write itself."""
    found = sorted(folder.rglob("*"))
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


def _folder(named: str) -> Path:
    root = Path(named).expanduser()
    if not root.is_dir():
        where = "no git" if _git("rev-parse", "HEAD") is None else "no such commit"
        raise UserError(
            f"--against: '{named}': {where} in {ROOT} and no such folder; expected a commit, a "
            "branch or a tag of this checkout, or the folder of another one"
        )
    if not (root / CHILD).is_file():
        raise UserError(f"--against: {root}: expected a checkout of decodebench ({CHILD} in it)")
    return root.resolve()


def _unpacked(commit: str) -> Path:
    """The commit's files in the user's cache."""
    folder = cache_folder() / "versions"
    root = folder / commit
    if (root / CHILD).is_file():
        # a disk that takes no mark of its use holds it all the same
        with contextlib.suppress(OSError):
            os.utime(root)
        return root
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", commit, "--", *_tracked(commit)],
        capture_output=True,
    )
    if packed.returncode:
        raise UserError(f"--against: git archive: {packed.stderr.decode().strip()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _drop_old(folder)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            whole = Path(place) / "whole"
            with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
                archive.extractall(whole, filter="data")
            if not (whole / CHILD).is_file():
                raise UserError(f"--against: {commit[:12]}: expected a commit that has {CHILD}")
            if not root.exists():  # another run may have been faster
                rename_folder(whole, root)
    except OSError as error:
        raise UserError(f"--against: {error.filename or folder}: {error.strerror}") from None
    return root.resolve()


def _tracked(commit: str) -> list[str]:
    """Those of our packages that the commit has."""
    listed = _git("ls-tree", "--name-only", commit) or ""
    return [name for name in listed.splitlines() if name in PACKAGES]


def _drop_old(folder: Path) -> None:
    for root in folder.iterdir():
        if time.time() - root.stat().st_mtime > KEPT_DAYS * 86_400:
            shutil.rmtree(root, ignore_errors=True)


def _probe(root: Path, python: str, named: str) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [python, "-c", PROBE],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            timeout=_PROBE_LIMIT_S,
        )
        if done.returncode == 0:
            found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return found
        problem = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        problem = " ".join(str(error).split())
    raise UserError(f"--against: {named}: cannot be asked what it is ({problem[:300]})")


def _check_fields(
    named: str, theirs: Mapping[str, Sequence[str]], ours: Mapping[str, Sequence[str]]
) -> None:
    """What goes through the pipe has to mean the same to both ends."""
    for name, fields in ours.items():
        there = theirs.get(name)
        if there == list(fields):
            continue
        what = f"has no {name}"
        if there is not None:
            differing = sorted(set(there) ^ set(fields)) or ["their order"]
            short = name.rpartition(".")[2]
            what = f"its {short} has other fields than ours ({', '.join(differing)})"
        raise UserError(
            f"--against: {named}: {what}, so that the two cannot be run side by side; run each by "
            "itself and use 'compare'"
        )


def _digest(root: Path) -> str:
    """Of all files in our packages."""
    found = {package: _files(root / package) for package in PACKAGES}
    return digest(canonical_json(found).encode())
