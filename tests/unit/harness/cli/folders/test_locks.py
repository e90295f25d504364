"""Who holds a run folder where its file system cannot lock folders, or nothing at all."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli.folders import run_folder
from harness.core.errors import UserError
from harness.core.files import only_writer
from results.store.folder import Store


def locking(can: Callable[[int], bool]) -> Callable[[int, int], None]:
    own = fcntl.flock

    def lock(descriptor: int, how: int) -> None:
        if not can(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        own(descriptor, how)

    return lock


def test_where_folders_cannot_be_locked_a_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on NFS, which locks only what is open for writing."""
    monkeypatch.setattr(fcntl, "flock", locking(stat.S_ISREG))
    run_folder.check_writing(Store(tmp_path))
    assert list(tmp_path.iterdir()) == [], "a dry run writes nothing"
    with only_writer(tmp_path):
        for second in (
            only_writer(tmp_path),
            only_writer(tmp_path, writes=False),
        ):
            with pytest.raises(UserError, match="another run is writing into it"):
                second.__enter__()
    with only_writer(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    run_folder.check_folder(tmp_path)
    assert capsys.readouterr().err == ""


def test_where_nothing_can_be_locked_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fcntl, "flock", locking(lambda mode: False))
    with only_writer(tmp_path):
        assert "warning: " in capsys.readouterr().err
