"""What is kept in the user's cache folder, and how it goes."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import pytest

from backends.checkpoints import models
from backends.checkpoints.cache import choose, kept, remove
from harness.cli import main as cli
from harness.core.errors import UserError
from tests.support.small_shapes import small_shape


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "decodebench"


@pytest.fixture
def shapes(tmp_path: Path, home: Path) -> list[Path]:
    (home / "shapes").mkdir(parents=True)
    (home / "decodebench-native-0123456789abcdef.so").write_bytes(b"x" * 10)
    (home / "shapes" / "my thesis").mkdir()
    return [models.resolve(small_shape(tmp_path / name)) for name in ("big", "small")]


def run(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["decodebench", "cache", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_shapes_and_kernels_are_listed_with_what_they_take(
    shapes: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--json", monkeypatch=monkeypatch) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["kind"], row["path"]) for row in rows[:2]] == [("shape", str(p)) for p in shapes]
    assert rows[0]["bytes"] == sum(path.stat().st_size for path in shapes[0].iterdir())
    assert (rows[2]["kind"], rows[2]["bytes"], len(rows)) == ("kernels", 10, 3)
    assert run(monkeypatch=monkeypatch) == 0
    table = capsys.readouterr().out
    assert all(row["name"] in table and row["used_at"] in table for row in rows)
    assert "3 in the cache, " in table


def test_an_empty_cache_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out == "0 in the cache, 0 bytes\n"
    assert run("clear", "--yes", monkeypatch=monkeypatch) == 0
    assert run("clear", "0.5b", monkeypatch=monkeypatch) == 2
    assert "the cache is empty" in capsys.readouterr().err


def test_a_use_is_noted(shapes: list[Path], tmp_path: Path) -> None:
    os.utime(shapes[0], (0, 0))
    assert kept()[0].used_at == "1970-01-01T00:00:00+00:00"
    models.resolve(small_shape(tmp_path / "big"))
    assert kept()[0].used_at > "2020"


def test_clear_removes_what_is_named_and_asks_before(
    shapes: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    big, small = shapes
    assert run("clear", "bg-config", "--yes", monkeypatch=monkeypatch) == 2
    assert "nothing is called 'bg-config'; did you mean 'big-config'?" in capsys.readouterr().err
    assert run("clear", "nope", "--yes", monkeypatch=monkeypatch) == 2
    told = "nothing is called 'nope'; 'decodebench cache' lists what is"
    assert capsys.readouterr().err.endswith(f"{told}\n")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert run("clear", monkeypatch=monkeypatch) == 2
    assert "would remove 3 in the cache" in capsys.readouterr().err
    assert big.is_dir()
    assert run("clear", "big-config", "--yes", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out.startswith(f"removed {big.name}, ")
    assert (big.exists(), small.exists()) == (False, True)
    assert run("clear", "--yes", monkeypatch=monkeypatch) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert kept() == []
    assert sorted(path.name for path in small.parent.iterdir()) == [".lock", "my thesis"]


def test_links_are_never_followed(shapes: list[Path], tmp_path: Path, home: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_bytes(b"x" * 4096)
    (home / "shapes" / "linked-0123456789ab").symlink_to(precious)
    (shapes[0] / "inner").symlink_to(precious)
    own = {one.name: one for one in kept()}
    assert own["linked-0123456789ab"].bytes < 4096
    assert own[shapes[0].name].bytes < own[shapes[1].name].bytes + 4096
    for one in kept():
        remove(one)
    assert (precious / "data").is_file()
    assert kept() == []


def test_a_folder_of_shapes_that_is_a_link_is_left_alone(
    shapes: list[Path], tmp_path: Path, home: Path
) -> None:
    (home / "shapes").rename(tmp_path / "elsewhere")
    (home / "shapes").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="a link, which is not followed; remove big-config-"):
        remove(kept()[0])
    assert models.resolve(small_shape(tmp_path / "big")).is_dir()


def test_half_a_shape_is_never_taken_for_whole(
    shapes: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path) -> None:
        (path / "model.safetensors").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove(choose(kept(), "big-config")[0])
    assert not shapes[0].exists()
    assert (models.resolve(small_shape(tmp_path / "big")) / "model.safetensors").is_file()


def test_answers_of_trainings_are_listed_and_go_with_the_rest(home: Path) -> None:
    (home / "answers").mkdir(parents=True)
    for name in ("0123.jsonl", "4567.jsonl", ".0123.jsonl.7-0.tmp"):
        (home / "answers" / name).write_text("[[0, [5]]]\n")
    assert [(one.kind, one.name, one.bytes) for one in kept()] == [
        ("answers", "0123.jsonl", 11),
        ("answers", "4567.jsonl", 11),
    ]
    for one in choose(kept(), "answers"):
        remove(one)
    assert kept() == []
