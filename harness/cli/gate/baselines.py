"""Where baselines are kept: a file of record for each machine, in a folder or on a git branch.

A branch is read and written through git itself, without a checkout: its files are taken from git's
objects, and a new baseline is a commit on top of the branch, whatever is checked out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.cli.gate.compare import GIT
from harness.core.errors import UserError, nearest
from results.compare.gate.record_file import parse_record, read_record, write_record
from results.compare.gate.reduced import ReducedRun

SUFFIX = ".parquet"
_HEADS = "refs/heads/"
_UPDATE = "'--update' stores one"
_WHO = {"NAME": "decodebench", "EMAIL": "decodebench@localhost"}
"""Who commits, where git does not know."""


def open_store(named: str) -> FolderBaselines | GitBaselines:
    """The store that `--baseline-store` names. Raises `UserError` for what no branch is called and
    no reference leads to."""
    if named.startswith(GIT):
        branch = named.removeprefix(GIT)
        if not _is_name(branch) and _resolved(branch) is None:
            raise UserError(_no_name(named))
        return GitBaselines(branch)
    return FolderBaselines(Path(named))


@dataclasses.dataclass(frozen=True, slots=True)
class FolderBaselines:
    """A folder."""

    path: Path

    def machines(self) -> list[str]:
        """Whose baselines there are. Raises `UserError`."""
        try:
            return sorted(path.stem for path in self.path.iterdir() if path.suffix == SUFFIX)
        except FileNotFoundError:
            return []
        except OSError as error:
            told = f"{error.strerror}; expected a folder of baselines"
            raise UserError(f"{self.path}: {told}") from None

    def read(self, machine: str) -> ReducedRun:
        """Raises `UserError`."""
        return read_record(self.path / f"{machine}{SUFFIX}")

    def how_to_get_one(self) -> str:
        """What to do where a machine has none."""
        return _UPDATE

    def write(self, machine: str, run: ReducedRun) -> str:
        """Where it is now, for people. Raises `UserError` and `OSError`."""
        path = self.path / _file(machine)
        self.machines()  # says in words what is no folder
        write_record(path, run)
        return str(path)


@dataclasses.dataclass(frozen=True, slots=True)
class GitBaselines:
    """A branch (for reading any reference) of the repository that the current folder is in. Of
    references of one name it is the local branch, which is what `write` moves."""

    branch: str

    def machines(self) -> list[str]:
        """As of `FolderBaselines`."""
        return sorted(name.removesuffix(SUFFIX) for name in self._files() if name.endswith(SUFFIX))

    def read(self, machine: str) -> ReducedRun:
        """As of `FolderBaselines`."""
        return read_from_git(f"{GIT}{self.branch}:{machine}{SUFFIX}")

    def how_to_get_one(self) -> str:
        """As of `FolderBaselines`. A clone has the branches that it fetched."""
        if _resolved(_local_first(self.branch)) is not None:
            return _UPDATE
        name = self.branch.removeprefix("origin/")
        fetch = f"git fetch origin +refs/heads/{name}:refs/remotes/origin/{name}"
        return f"there is no branch '{self.branch}' here: '{fetch}' brings it; {_UPDATE}"

    def write(self, machine: str, run: ReducedRun) -> str:
        """Commit the file on top of the branch, which is made where it is not there. The branch
        only moves where nobody moved it meanwhile."""
        name, ref = _file(machine), f"{_HEADS}{self.branch}"
        if not _is_name(self.branch):
            raise UserError(_no_name(f"{GIT}{self.branch}"))
        if _resolved(f"refs/remotes/{self.branch}") is not None:
            _, _, local = self.branch.partition("/")
            raise UserError(
                f"{GIT}{self.branch}: a remote's branch as it was fetched, which only 'git fetch' "
                f"moves; expected the local one: {GIT}{local}"
            )
        before = _resolved(ref)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            write_record(path, run)
            blob = _told("hash-object", "-w", "--no-filters", str(path))
        entries = {**(self._files(ref) if before else {}), name: f"100644 blob {blob}"}
        listed = "".join(f"{mode}\t{file}\n" for file, mode in sorted(entries.items()))
        tree = _told("mktree", given=listed)
        words = f"Baseline of machine {machine}: {len(run.trials)} trials"
        parents = ("-p", before) if before else ()
        commit = _told("commit-tree", tree, *parents, "-m", words, env=_who())
        _told("update-ref", "-m", words, ref, commit, before or "0" * len(commit))
        return f"{GIT}{self.branch}:{name} ({commit[:12]}; 'git push' shares it)"

    def _files(self, ref: str | None = None) -> dict[str, str]:
        """Name -> "MODE KIND OBJECT" of what stands at the top of the branch."""
        _inside()
        named = ref or _local_first(self.branch)
        listed = _git("ls-tree", "--full-tree", named, check=False) or b""
        lines = (line.split("\t", 1) for line in listed.decode().splitlines())
        return {name: mode for mode, name in lines}


def former_baselines(named: str) -> Iterator[ReducedRun | UserError]:
    """Every baseline that a branch ever had, the oldest first: each file of record of each commit
    that changed it, and in the place of one that cannot be read the reason. Raises `UserError` for
    a branch that is not there."""
    _inside()
    branch = _local_first(named.removeprefix(GIT))
    _check_ref(named, branch)
    for commit in _told("rev-list", "--reverse", branch, "--").split():
        told = _told("diff-tree", "--root", "--no-commit-id", "--name-only", "-r", commit)
        for name in told.splitlines():
            path = f"{commit}:{name}"
            if name.endswith(SUFFIX) and _git("cat-file", "-e", path, check=False) is not None:
                try:
                    yield read_from_git(f"{GIT}{commit[:12]}:{name}")
                except UserError as error:
                    yield error


def read_from_git(named: str) -> ReducedRun:
    """The file of record ``git:REF:PATH``. Raises `UserError`."""
    ref, _, path = named.removeprefix(GIT).partition(":")
    if not ref or not path:
        raise UserError(f"{named}: expected git:REF:PATH, a file of record on a branch")
    _inside()
    ref = _local_first(ref)
    _check_ref(named, ref)
    content = _git("cat-file", "blob", f"{ref}:{path}", check=False)
    if content is None:
        raise UserError(f"{named}: no such file there; 'compare --update' stores a baseline")
    return parse_record(content, named)


def _file(machine: str) -> str:
    """The name of a machine's file. Raises `UserError` for what is no fingerprint: it comes from a
    record that anybody may have written, and would name any file."""
    if re.fullmatch("[0-9a-f]{12}", machine) is None:
        raise UserError(f"{machine!r} is no fingerprint of a machine; expected 12 hex digits")
    return f"{machine}{SUFFIX}"


def _is_name(branch: str) -> bool:
    return _git("check-ref-format", f"{_HEADS}{branch}", check=False) is not None


def _no_name(store: str) -> str:
    return f"{store}: no name of a branch; expected git:BRANCH"


def _local_first(ref: str) -> str:
    """A tag of the same name comes first for git."""
    return f"{_HEADS}{ref}" if _resolved(f"{_HEADS}{ref}") is not None else ref


def _check_ref(named: str, ref: str) -> None:
    if _resolved(ref) is None:
        branches = _told("for-each-ref", "--format=%(refname:short)").split()
        raise UserError(f"{named}: no branch, tag or commit '{ref}'; {nearest(ref, branches)}")


def _inside() -> None:
    if _git("rev-parse", "--git-dir", check=False) is None:
        raise UserError(f"{GIT}...: {Path.cwd()} is in no git repository; change into it")


def _resolved(ref: str) -> str | None:
    found = _git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", check=False)
    return found.decode().strip() if found else None


def _who() -> dict[str, str]:
    """A name for the commit where git has none, as on a runner."""
    if all(_git("var", f"GIT_{role}_IDENT", check=False) for role in ("AUTHOR", "COMMITTER")):
        return {}
    return {f"GIT_{role}_{key}": v for role in ("AUTHOR", "COMMITTER") for key, v in _WHO.items()}


def _told(*arguments: str, given: str = "", env: Mapping[str, str] | None = None) -> str:
    return (_git(*arguments, given=given, env=env) or b"").decode().strip()


def _git(
    *arguments: str, given: str = "", env: Mapping[str, str] | None = None, check: bool = True
) -> bytes | None:
    """What git says; None where it fails and need not succeed."""
    with _failures():
        done = subprocess.run(
            ["git", *arguments],
            input=given.encode(),
            capture_output=True,
            env={**os.environ, **(env or {})},
            timeout=60,
        )
    if done.returncode == 0:
        return done.stdout
    if check:
        said = (done.stderr.decode(errors="replace").strip().splitlines() or ["failed"])[-1]
        raise UserError(f"git {arguments[0]}: {said}")
    return None


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"git: {' '.join(str(error).split())[:200]}") from None
