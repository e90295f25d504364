"""Baselines in a folder and on a git branch, which nobody checks out."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from harness.cli.gate.baselines import former_baselines, open_store, read_from_git
from harness.cli.gate.compare import read_side
from harness.core.errors import UserError
from results.compare.gate.record_file import write_record
from results.compare.gate.reduced import ReducedRun
from tests.support.results.reduced_runs import timed_run

STORE = "git:speed/baselines"


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def run_of(ms: float) -> ReducedRun:
    return timed_run("made up", np.full((2, 4), ms / 1e3))


def times(run: ReducedRun) -> float:
    return float(run.trials[0].values["tpot_s"][0])


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with a commit, where git does not know who commits."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    git("init", "-q", "-b", "main")
    (tmp_path / "code.py").write_text("x = 1\n")
    git("add", "code.py")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "code")
    return tmp_path


def test_a_baseline_is_a_commit_on_its_branch(repository: Path) -> None:
    store = open_store(STORE)
    assert store.machines() == []
    assert store.write("abc0abc0abc0", run_of(5)).startswith(f"{STORE}:abc0abc0abc0.parquet (")
    store.write("def0def0def0", run_of(7))
    store.write("abc0abc0abc0", run_of(6))
    assert store.machines() == ["abc0abc0abc0", "def0def0def0"]
    assert (times(store.read("abc0abc0abc0")), times(store.read("def0def0def0"))) == (0.006, 0.007)
    assert store.read("abc0abc0abc0").where == f"{STORE}:abc0abc0abc0.parquet"
    # what stood there before can still be compared with
    assert times(read_side(Path("git:speed/baselines~2:abc0abc0abc0.parquet"), ())) == 0.005
    assert git("log", "--format=%s", "speed/baselines").splitlines() == [
        "Baseline of machine abc0abc0abc0: 2 trials",
        "Baseline of machine def0def0def0: 2 trials",
        "Baseline of machine abc0abc0abc0: 2 trials",
    ]
    assert git("branch", "--show-current") == "main"
    assert git("status", "--porcelain") == "", "nothing was checked out"


def test_a_subfolder_keeps_the_baselines_of_other_machines(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(STORE).write("abc0abc0abc0", run_of(5))
    (repository / "sub").mkdir()
    monkeypatch.chdir(repository / "sub")
    open_store(STORE).write("def0def0def0", run_of(5))
    assert sorted(open_store(STORE).machines()) == ["abc0abc0abc0", "def0def0def0"]


def test_who_commits_is_whom_git_knows_and_else_this_program(repository: Path) -> None:
    # else git may make a name up from the machine's
    git("config", "user.useConfigOnly", "true")
    open_store(STORE).write("abc0abc0abc0", run_of(5))
    git("config", "user.name", "Ada")
    git("config", "user.email", "ada@example.org")
    open_store(STORE).write("abc0abc0abc0", run_of(6))
    assert git("log", "--format=%an <%ae>, %cn <%ce>", STORE.removeprefix("git:")).splitlines() == [
        "Ada <ada@example.org>, Ada <ada@example.org>",
        "decodebench <decodebench@localhost>, decodebench <decodebench@localhost>",
    ]


def test_a_clone_goes_on_from_the_branch_that_it_fetched(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/ci.md has it: a clone has no local branch, and a new one lacks the other machines."""
    open_store(STORE).write("abc0abc0abc0", run_of(5))
    branch, clone = STORE.removeprefix("git:"), tmp_path_factory.mktemp("clone")
    git("clone", "-q", str(repository), str(clone))
    monkeypatch.chdir(clone)
    assert open_store(f"git:origin/{branch}").machines() == ["abc0abc0abc0"]
    git("fetch", "-q", "origin", f"+refs/heads/{branch}:refs/heads/{branch}")
    open_store(STORE).write("def0def0def0", run_of(6))
    git("push", "-q", "origin", branch)
    monkeypatch.chdir(repository)
    assert open_store(STORE).machines() == ["abc0abc0abc0", "def0def0def0"]


def test_every_baseline_that_a_branch_had_is_read_in_turn(repository: Path) -> None:
    store = open_store(STORE)
    for ms in (5, 6, 7):
        store.write("abc0abc0abc0", run_of(ms))
    store.write("def0def0def0", run_of(9))
    every = list(former_baselines(STORE))
    found = [run for run in every if isinstance(run, ReducedRun)]
    assert len(found) == len(every)
    assert [times(run) for run in found] == [0.005, 0.006, 0.007, 0.009]
    assert [run.where.rpartition(":")[2] for run in found] == ["abc0abc0abc0.parquet"] * 3 + [
        "def0def0def0.parquet"
    ]
    with pytest.raises(UserError, match="no branch, tag or commit 'speed/baseline'; did you mean"):
        list(former_baselines("git:speed/baseline"))


def test_a_branch_that_was_not_fetched_is_said_to_be_missing(repository: Path) -> None:
    """A pull request's clone has none but its own."""
    told = open_store("git:origin/baselines").how_to_get_one()
    fetch = "git fetch origin +refs/heads/baselines:refs/remotes/origin/baselines"
    assert told.startswith(f"there is no branch 'origin/baselines' here: '{fetch}' brings it")
    open_store(STORE).write("abc0abc0abc0", run_of(5))
    assert open_store(STORE).how_to_get_one() == "'--update' stores one"


def test_filters_of_the_repository_leave_a_baseline_as_it_is(repository: Path) -> None:
    git("config", "filter.odd.clean", "tr A-Za-z B-ZAb-za")
    (repository / ".gitattributes").write_text("*.parquet filter=odd\n")
    open_store(STORE).write("abc0abc0abc0", run_of(5))
    assert times(open_store(STORE).read("abc0abc0abc0")) == 0.005


def test_of_a_tag_and_a_branch_of_one_name_the_branch_is_meant(repository: Path) -> None:
    """`git` takes the tag, so that what was stored could not be read, nor the next one kept."""
    store = open_store("git:baselines")
    git("tag", "baselines")
    store.write("abc0abc0abc0", run_of(5))
    store.write("def0def0def0", run_of(6))
    assert store.machines() == ["abc0abc0abc0", "def0def0def0"]
    assert times(store.read("abc0abc0abc0")) == 0.005
    assert len(list(former_baselines("git:baselines"))) == 2


def test_a_remote_s_branch_is_read_and_not_written(repository: Path) -> None:
    """A local branch of its name would hide it from then on."""
    open_store("git:kept").write("abc0abc0abc0", run_of(5))
    git("update-ref", "refs/remotes/origin/baselines", "kept")
    store = open_store("git:origin/baselines")
    assert store.machines() == ["abc0abc0abc0"]
    with pytest.raises(UserError, match="expected the local one: git:baselines"):
        store.write("abc0abc0abc0", run_of(6))
    assert "refs/heads/origin" not in git("for-each-ref", "--format=%(refname)")


@pytest.mark.parametrize("named", ["../outside", "abc", "ABC0ABC0ABC0", "abc0abc0abc0\n", ""])
def test_what_is_no_fingerprint_names_no_file(repository: Path, named: str) -> None:
    """It is the run's own word."""
    (repository / "kept").mkdir()
    for store in (str(repository / "kept"), STORE):
        with pytest.raises(UserError, match="is no fingerprint of a machine") as caught:
            open_store(store).write(named, run_of(5))
        assert "\n" not in str(caught.value)
    assert not list(repository.rglob("*.parquet"))


def test_a_folder_does_the_same(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "kept"))
    assert store.machines() == []
    store.write("abc0abc0abc0", run_of(5))
    assert store.machines() == ["abc0abc0abc0"]
    assert times(store.read("abc0abc0abc0")) == 0.005


def test_what_is_no_folder_is_no_store_without_a_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said to have none, which '--update' would store: there it could not be written."""
    file = tmp_path / "kept.parquet"
    write_record(file, run_of(5))
    told = f"{file}: Not a directory; expected a folder of baselines"
    with pytest.raises(UserError, match=told):
        open_store(str(file)).machines()
    with pytest.raises(UserError, match=told):
        open_store(str(file)).write("abc0abc0abc0", run_of(5))

    def refused(path: Path) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", refused)
    with pytest.raises(UserError, match="Permission denied; expected a folder of baselines"):
        open_store(str(tmp_path)).machines()


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ("git:main", "expected git:REF:PATH, a file of record on a branch"),
        ("git:mian:abc0abc0abc0.parquet", "no branch, tag or commit 'mian'; did you mean 'main'?"),
        (
            "git:main:abc0abc0abc0.parquet",
            "no such file there; 'compare --update' stores a baseline",
        ),
        ("git:main:code.py", "git:main:code.py: not a file of record"),
    ],
)
def test_what_is_no_record_is_told_in_a_line(repository: Path, named: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        read_from_git(named)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_branch_and_no_repository(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for named in ("git:", "git:a..b", "git: b"):
        with pytest.raises(UserError, match=f"^{named}: no name of a branch; expected git:BRANCH"):
            open_store(named)
    assert open_store("git:main~0").machines() == [], "any reference may be read"
    with pytest.raises(UserError, match="no name of a branch; expected git:BRANCH"):
        open_store("git:main~0").write("abc0abc0abc0", run_of(5))
    outside = tmp_path_factory.mktemp("outside")
    monkeypatch.chdir(outside)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(outside.parent))
    with pytest.raises(UserError, match="is in no git repository"):
        open_store(STORE).machines()
