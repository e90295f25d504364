"""The order in which a record reaches the disk, which only a crash would show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.core import files
from results.store.folder import Store
from tests.support.results.make_trials import a_record


class Crash(BaseException):
    """The process ends here."""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done to the folder from now on: flushes, renames and deletions, by file name. A
    temporary file is named by its target."""
    done: list[str] = []
    replace, unlink, fsync = Path.replace, Path.unlink, os.fsync

    def name(path: Path) -> str:
        return path.name.split(".")[2] + ".tmp" if path.name.startswith(".") else path.suffix[1:]

    def replaced(self: Path, target: Path) -> Path:
        done.append(f"rename {name(Path(target))}")
        return replace(self, target)

    def unlinked(self: Path, missing_ok: bool = False) -> None:
        if self.exists():
            done.append(f"delete {name(self)}")
        unlink(self, missing_ok)

    def flushed(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        done.append("flush folder" if path.is_dir() else f"flush {name(path)}")
        fsync(descriptor)

    monkeypatch.setattr(Path, "replace", replaced)
    monkeypatch.setattr(Path, "unlink", unlinked)
    monkeypatch.setattr(os, "fsync", flushed)
    return done


def test_the_json_is_the_last_thing_to_appear_and_an_old_one_the_first_to_go(
    tmp_path: Path, steps: list[str]
) -> None:
    """Each rename is flushed before the next, so that a power cut cannot swap them."""
    store = Store(tmp_path)
    whole = ["rename parquet", "flush folder", "rename json", "flush folder"]
    flushed = ["flush parquet.tmp", "flush json.tmp"]
    store.write(a_record(status="failed"))
    assert steps == flushed + whole
    steps.clear()
    store.write(a_record())
    assert steps == [*flushed, "delete json", *whole]


def test_a_file_is_flushed_before_it_is_renamed_and_its_folder_after(
    tmp_path: Path, steps: list[str]
) -> None:
    files.write_atomic(tmp_path / "experiment.yaml", b"name: x")
    assert steps == ["flush yaml.tmp", "rename yaml", "flush folder"]
    assert (tmp_path / "experiment.yaml").read_bytes() == b"name: x"


@pytest.mark.parametrize("at", range(7))
def test_a_crash_at_any_step_leaves_the_old_record_the_new_one_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Two records of one key whose generations differ: never the JSON of one beside the Parquet of
    the other."""
    store = Store(tmp_path)
    old = a_record(status="failed", error="first try")
    new = a_record()
    object.__setattr__(new, "generations", new.generations[:2])
    store.write(old)
    left = at

    def dying(step: object) -> object:
        def call(*arguments: object, **more: object) -> object:
            nonlocal left
            if left == 0:
                raise Crash
            left -= 1
            return step(*arguments, **more)  # type: ignore[operator]

        return call

    with monkeypatch.context() as patched:
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink")):
            patched.setattr(owner, name, dying(getattr(owner, name)))
        with pytest.raises(Crash):
            store.write(new)
    keys = store.keys()
    assert [store.read(key) in (old, new) for key in keys] in ([], [True])


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("at", range(7))
def test_an_interrupt_at_any_step_leaves_the_old_record_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, done: bool
) -> None:
    """Once the step is `done`, or before it."""
    store = Store(tmp_path)
    old, new = a_record(status="failed", error="first try"), a_record()
    object.__setattr__(new, "generations", new.generations[:2])
    store.write(old)
    left = at

    def interrupted(step: object) -> object:
        def call(*arguments: object, **more: object) -> object:
            nonlocal left
            left -= 1
            made = step(*arguments, **more) if left != -1 or done else None  # type: ignore[operator]
            if left == -1:
                raise KeyboardInterrupt
            return made

        return call

    with monkeypatch.context() as patched:
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink")):
            patched.setattr(owner, name, interrupted(getattr(owner, name)))
        with pytest.raises(KeyboardInterrupt):
            store.write(new)
    assert store.read(new.key) == (old if at < 2 or (at == 2 and not done) else new)
    assert {path.suffix for path in store.trials_folder.iterdir()} == {".json", ".parquet"}
