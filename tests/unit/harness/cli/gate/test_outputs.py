"""Where an answer cannot be written, nothing is run or compared for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.cli.gate import calibrate, compare
from harness.core.errors import UserError
from harness.core.files import check_writable, write_atomic
from results.history import series
from tests.support.harness.command import call


@pytest.mark.parametrize(
    ("out", "why"), [("no/a.md", "No such file or directory"), (".", "is a folder")]
)
@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("compare", "a", "b"), "--markdown"),
        (("compare", "a", "b"), "--junit"),
        (("gate", "calibrate", "a.yaml"), "--out"),
        (("history", "runs"), "--out"),
    ],
)
def test_it_is_said_before_anything_is_looked_at(
    command: tuple[str, ...],
    option: str,
    out: str,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A comparison's verdict was lost, and what was run for a gate file."""

    def begun(*_: object, **__: object) -> None:
        pytest.fail("it was begun first")

    monkeypatch.chdir(tmp_path)
    for module, name in ((compare, "_decided"), (calibrate, "_run"), (series, "history")):
        monkeypatch.setattr(module, name, begun)
    assert call(monkeypatch, *command, option, out) == 2
    told = f"{option} {out}: cannot be written: {why}; expected a file in a folder that is there"
    assert capsys.readouterr().err == f"decodebench: {told}\n"
    assert not list(tmp_path.iterdir())


def test_a_pipe_stays_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file took the place of ``/dev/stdout`` for the whole machine."""
    os.mkfifo(pipe := tmp_path / "pipe")
    (null := tmp_path / "null").symlink_to("/dev/null")
    for path in (pipe, null):
        assert call(monkeypatch, "compare", "a", "b", "--markdown", str(path)) == 2
        told = f"--markdown {path}: cannot be written: is a device or a pipe; expected a file"
        assert told in capsys.readouterr().err
        with pytest.raises(OSError, match="is a device or a pipe"):
            write_atomic(path, b"")
    assert pipe.is_fifo()
    with pytest.raises(UserError, match="is a device or a pipe"):  # it only asks
        check_writable(Path("/dev/stdout"), "--markdown")
