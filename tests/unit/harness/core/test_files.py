"""Files of our own appear whole or not at all, and only this module makes them appear."""

from __future__ import annotations

import ast
import errno
import os
import socket
from pathlib import Path

import pytest

from harness.core import files

ROOT = Path(__file__).parents[4]
RENAMES_OF_ITS_OWN = {"harness/core/files.py", "results/store/folder.py"}
"""The store renames two files in an order that matters."""
NOBODY = 4_194_305
"""No process has such an id."""


def test_what_is_written_piece_by_piece_is_flushed_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "states"
    target.write_bytes(b"old")
    flushed: list[bytes] = []

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        flushed.append(b"folder" if path.is_dir() else path.read_bytes())
        assert (target.read_bytes() == b"new") == path.is_dir()

    monkeypatch.setattr(os, "fsync", fsync)
    with files.replacing(target) as temporary, temporary.open("wb") as file:
        file.write(b"ne")
        file.write(b"w")
        assert target.read_bytes() == b"old"
    assert (flushed, target.read_bytes()) == ([b"new", b"folder"], b"new")
    assert list(tmp_path.iterdir()) == [target]


def test_a_writer_that_fails_or_gives_up_leaves_the_target_alone(tmp_path: Path) -> None:
    target = tmp_path / "states"
    target.write_bytes(b"old")

    def interrupted() -> None:
        with files.replacing(target) as temporary:
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with files.replacing(target) as temporary:
        temporary.write_bytes(b"half")
        temporary.unlink()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_what_another_machine_is_writing_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-1.lab")
    here, there, old = (
        tmp_path / f".a.{NOBODY}-0-{host}.tmp" for host in ("gpu-1_lab", "gpu-2_lab", "gpu-3")
    )
    for path in (here, there, old):
        path.touch()
    os.utime(old, (0, 0))
    with files.replacing(tmp_path / "a") as temporary:
        assert temporary.name.endswith("-gpu-1_lab.tmp")
        assert list(tmp_path.iterdir()) == [there]


def test_what_a_killed_writer_left_of_this_target_goes_and_nothing_else(tmp_path: Path) -> None:
    left, other = (tmp_path / f".{name}.{NOBODY}-0.tmp" for name in ("a[1]", "b"))
    alive = tmp_path / f".a[1].{os.getppid()}-0.tmp"
    for path in (left, other, alive):
        path.write_bytes(b"half")
    files.write_atomic(tmp_path / "a[1]", b"whole")
    assert set(tmp_path.iterdir()) == {other, alive, tmp_path / "a[1]"}


@pytest.mark.parametrize("name", ["a" * 255, "a" + "ä" * 127])
def test_a_name_as_long_as_a_name_may_be(name: str, tmp_path: Path) -> None:
    with files.replacing(tmp_path / name) as left:
        pass
    left.with_name(left.name.replace(f".{os.getpid()}-", f".{NOBODY}-")).touch()
    files.write_atomic(tmp_path / name, b"whole")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_another_user_left_and_nobody_else_may_remove_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = (tmp_path / f".a.{NOBODY}-{serial}.tmp" for serial in range(2))
    for path in (theirs, ours):
        path.touch()
    unlink = Path.unlink

    def sticky(path: Path, missing_ok: bool = False) -> None:
        if path == theirs:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", sticky)
    files.write_atomic(tmp_path / "a", b"whole")
    assert set(tmp_path.iterdir()) == {theirs, tmp_path / "a"}


def test_an_error_names_the_target_or_the_file_that_it_is_about(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        files.write_atomic(tmp_path / "none" / "a", b"")
    assert caught.value.filename == str(tmp_path / "none" / "a")
    with pytest.raises(FileNotFoundError) as caught, files.replacing(tmp_path / "a"):
        (tmp_path / "missing").read_bytes()
    assert caught.value.filename == str(tmp_path / "missing")


def renames(path: Path) -> list[int]:
    """Lines that rename a file: `Path.replace` takes one argument, `str.replace` two."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        one = len(node.args) == 1 and not node.keywords
        whose = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
        by_path = node.func.attr in ("replace", "rename") and one
        if by_path or (whose, node.func.attr) in {
            ("os", "replace"), ("os", "rename"), ("shutil", "move"),
        }:  # fmt: skip
            found.append(node.lineno)
    return found


def test_nobody_else_renames_files() -> None:
    folders = ("harness", "backends", "workloads", "results", "reports")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): renames(path) for path in paths}
    assert {name for name, lines in found.items() if lines} == RENAMES_OF_ITS_OWN


def test_a_read_only_disk_is_told_by_the_name_of_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses to remove what was never written there, too."""

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    for write in (files.write_atomic, files.write_temporary):
        with pytest.raises(OSError, match="Read-only") as caught:
            write(tmp_path / "page", b"new")
        assert caught.value.filename == str(tmp_path / "page")
