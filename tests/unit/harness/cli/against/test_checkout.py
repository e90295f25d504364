"""Which versions can be run beside this one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from harness.cli.against import checkout
from harness.cli.against.checkout import CHILD, find_checkout
from harness.core.errors import UserError
from tests.support.harness.source_tree import copy_sources


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_sources(tmp_path_factory.mktemp("other"))


def edited(root: Path, file: str, text: str, other: str) -> None:
    content = (root / file).read_text()
    assert content.count(text) == 1
    (root / file).write_text(content.replace(text, other))


def test_what_never_leaves_a_child_may_differ(root: Path) -> None:
    """The load loop's own bookkeeping, and requests, which a child makes for itself."""
    edited(
        root, "harness/measure/load_loop.py", "class _Flight:\n", "class _Flight:\n    more: int\n"
    )
    edited(root, "harness/core/nouns.py", "class Request:\n", "class Request:\n    more: int\n")
    assert find_checkout(str(root)).version.root == root


@pytest.mark.parametrize(
    ("file", "text", "other", "words"),
    [
        (
            "harness/core/nouns.py",
            "    reasons: tuple[str, ...] = ()\n",
            "    reasons: tuple[str, ...] = ()\n    more: int = 0\n",
            "its Validity has other fields than ours (more), so that",
        ),
        (
            "harness/measure/machine/meters.py",
            "class Footprint:\n",
            "class Footprint:\n    more: int\n",
            "its Footprint has other fields than ours (more), so that",
        ),
        (
            "harness/cli/session.py",
            "def open_session(",
            "def opened_session(",
            "cannot be asked what it is (ImportError: cannot import name 'open_session'",
        ),
    ],
)
def test_what_goes_through_the_pipe_may_not(
    root: Path, file: str, text: str, other: str, words: str
) -> None:
    edited(root, file, text, other)
    with pytest.raises(UserError) as caught:
        find_checkout(str(root))
    edited(root, file, other, text)
    assert words in str(caught.value)


def test_a_class_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match=r"old: has no a\.b\.Ready, so that the two cannot be run"):
        checkout._check_fields("old", {"a.Ready": ["info"]}, {"a.b.Ready": ["info"]})


def test_a_disk_that_cannot_be_written_holds_a_version_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    unpacked = tmp_path / "decodebench/versions/c0ffee"
    (unpacked / CHILD.parent).mkdir(parents=True)
    (unpacked / CHILD).touch()
    monkeypatch.setattr(os, "utime", refuse)
    assert checkout._unpacked("c0ffee") == unpacked
