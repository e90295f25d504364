"""``--fresh``: what was stored goes when something good has been stored in its place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli.folders import run_folder
from harness.cli.folders.run_folder import ASIDE, forgetting, write_code
from harness.core.errors import UserError
from harness.core.files import move
from harness.core.nouns import Status, Trial
from results.store.folder import Store
from tests.unit.harness.cli.test_run import record


def stored(folder: Path) -> Store:
    store = Store(folder)
    for key, backend in (("a", "scripted"), ("b", "vllm"), ("c", "scripted")):
        store.write(replace(record(key, backend), status="ok"))
    return store


def by_scripted(trial: Trial) -> bool:
    return trial.backend == "scripted"


def writes(folder: Path, key: str, status: Status) -> None:
    """As a run does, at another time than the trials before. The clock of the file system was set
    back meanwhile."""
    store = Store(folder)
    store.write(replace(record(key), status=status, started_at="2026-01-02T03:04:05+00:00"))
    for path in store.trials_folder.glob(f"{key}.*"):
        os.utime(path, (0, 0))


def test_with_only_that_backend_is_forgotten_alone(tmp_path: Path) -> None:
    store = stored(tmp_path)
    (store.trials_folder / "damaged.json").write_text("{")
    with forgetting(store, True, by_scripted):
        assert store.keys() == ["b", "damaged"]
        writes(tmp_path, "new", "ok")
    assert store.keys() == ["b", "damaged", "new"]
    with forgetting(store, True):
        assert not store.trials_folder.exists()
        writes(tmp_path, "newer", "ok")
    assert store.keys() == ["newer"]
    assert [path.name for path in tmp_path.iterdir()] == ["trials"]


def test_everything_that_a_run_wrote_is_forgotten(tmp_path: Path) -> None:
    for name in ("prompts", "code", "cache", "logs", "of mine"):
        (tmp_path / name).mkdir()
    store = stored(tmp_path)
    with forgetting(store, True):
        assert {path.name for path in tmp_path.iterdir()} == {"of mine", ASIDE}
        writes(tmp_path, "a", "ok")
    assert {path.name for path in tmp_path.iterdir()} == {"of mine", "trials"}


@pytest.mark.parametrize("only", [None, by_scripted])
def test_where_nothing_ended_well_all_is_put_back(
    tmp_path: Path, only: Callable[[Trial], bool] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    store = stored(tmp_path)
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "x.parquet").write_text("x")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with forgetting(store, True, only):
        writes(tmp_path, "a", "failed")
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    told = f"--fresh: {tmp_path}: no trial ended well: what was stored is kept\n"
    assert capsys.readouterr().err == told


def test_a_deletion_that_is_cut_short_is_never_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are the same as before: what is put back would stand in the place of what is new."""
    store = stored(tmp_path)
    own = shutil.rmtree

    def killed(folder: Path) -> None:
        next(path for path in folder.rglob("*") if path.is_file()).unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)

    def run() -> None:
        with forgetting(store, True):
            for key in ("a", "b", "c"):
                writes(tmp_path, key, "ok")

    with pytest.raises(KeyboardInterrupt):
        run()
    monkeypatch.setattr(shutil, "rmtree", own)
    keys = ("a", "b", "c")
    new = [store.payload_state(key) for key in keys]
    with forgetting(store, False):
        pass
    assert [store.payload_state(key) for key in keys] == new
    assert {path.name for path in tmp_path.iterdir()} == {"trials"}


def test_what_code_records_that_come_back_were_of_is_kept(tmp_path: Path) -> None:
    store = stored(tmp_path)
    old = replace(record("old"), status="ok", environment={"code": "before"})
    store.write(old)
    store.write_code("before", {"a.py": "1"})
    with forgetting(store, True, by_scripted):
        write_code(store, {"after": {"a.py": "2"}})
        writes(tmp_path, "old", "failed")
    assert store.read_code("before") == {"a.py": "1"}


@pytest.mark.parametrize(("status", "keys"), [("ok", ["new"]), ("failed", ["a", "b", "c", "new"])])
def test_a_run_that_was_killed_is_settled_by_the_next(
    tmp_path: Path, status: Status, keys: list[str]
) -> None:
    store = stored(tmp_path)
    killed = forgetting(store, True)
    killed.__enter__()
    writes(tmp_path, "new", status)
    with forgetting(store, False):
        assert store.keys() == keys
    assert not (tmp_path / ASIDE).exists()


def test_what_is_put_back_half_is_no_new_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stored(tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    moved: list[Path] = []

    def killed(path: Path, target: Path) -> None:
        if path.is_relative_to(tmp_path / ASIDE):
            if len(moved) == 3:
                raise KeyboardInterrupt
            moved.append(path)
        move(path, target)

    monkeypatch.setattr(run_folder, "move", killed)

    def run() -> None:
        with forgetting(store, True):
            pass

    with pytest.raises(KeyboardInterrupt):
        run()
    assert any(path.suffix == ".json" for path in moved), "a whole record is there again"
    monkeypatch.setattr(run_folder, "move", move)
    with forgetting(store, False):
        pass
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("name", ["trials", "prompts"])
def test_a_link_is_refused_and_stays(tmp_path: Path, name: str) -> None:
    """Set aside, it would lead to what was stored and to nothing that is new."""
    store = stored(tmp_path / "run")
    (store.path / "prompts").mkdir()
    (store.path / name).rename(tmp_path / "large disk")
    (store.path / name).symlink_to(tmp_path / "large disk")
    before = sorted(store.path.rglob("*"))
    with pytest.raises(UserError, match=f"--fresh: .*/{name}: is a link"):
        forgetting(store, True).__enter__()
    assert sorted(store.path.rglob("*")) == before
    assert store.keys() == ["a", "b", "c"]


def test_a_link_that_an_older_version_set_aside_is_put_back(tmp_path: Path) -> None:
    store = stored(tmp_path / "run")
    store.trials_folder.rename(tmp_path / "large disk")
    (store.path / ASIDE).mkdir()
    (store.path / ASIDE / "trials").symlink_to(tmp_path / "large disk")
    with forgetting(store, False):
        assert store.keys() == ["a", "b", "c"]


def refuse(folder: Path) -> None:
    (folder / ASIDE).write_text("a file")


def spoil(folder: Path) -> None:
    path = folder / "trials" / "a.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 7'))


@pytest.mark.parametrize(
    ("harm", "message"), [(refuse, "--fresh: .*Not a directory"), (spoil, "schema version 7")]
)
def test_what_cannot_be_forgotten_is_an_error_and_not_a_run_of_nothing(
    tmp_path: Path, harm: Callable[[Path], None], message: str
) -> None:
    store = stored(tmp_path)
    harm(tmp_path)
    with pytest.raises(UserError, match=message):
        forgetting(store, True).__enter__()
    assert {path.name for path in store.trials_folder.glob("*.json")} == {
        "a.json", "b.json", "c.json"
    }  # fmt: skip
