"""Folders of random weights in the user's cache: made at first use, whole or not there.

Each is written under a temporary name and renamed when it is whole and on the disk; a lock of the
kernel's lets one process write at a time, and ends with it however that ends. What a killed one
leaves is hidden by its name and removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from backends.checkpoints import models
from backends.checkpoints.digests import FileDigests
from harness.core.errors import UserError
from harness.core.files import cache_folder, rename_folder, sync_folder

GIB = 2**30
LOCK = ".lock"
UNFINISHED = ".tmp"
TOLD_FROM_BYTES = 2**28
"""Larger ones take seconds: a line says what is going on."""
ROOM_BYTES = 2**20
"""For the files beside the weights."""


def folder() -> Path:
    """Holds the generated shapes; it need not exist."""
    return cache_folder() / "shapes"


def made(
    target: Path, what: str, weight_bytes: int, write: Callable[[Path], Mapping[str, str]]
) -> Path:
    """The folder `target` among the shapes, filled now by `write` unless it is there.

    Args:
        what: begins each error line.
        weight_bytes: of the weights that are written.
        write: fills a folder and returns the digests of its weights' files by name.

    Raises `UserError` for no room, before anything is written, and for a damaged folder.
    """
    if not target.is_dir():
        with writing(what):
            if not target.is_dir():  # else another process has made it meanwhile
                _check_room(what, weight_bytes + ROOM_BYTES, models.shapes_gib())
                _make(target, write)
    try:
        models.check_files(target)
    except UserError as error:
        raise damaged(str(error), target) from None
    with contextlib.suppress(OSError):
        os.utime(target)  # the last use, for `decodebench cache`
    return target


def damaged(what: str, target: Path) -> UserError:
    """The error that a folder is not as it was made, and what helps."""
    return UserError(
        f"{what}; it is made anew once 'decodebench cache clear {target.name}' has removed it"
    )


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Hold the folder of shapes, waiting for who holds it, and remove what killed writers left.
    Raises `UserError`, which begins with `what`, where there can be no such folder."""
    descriptor = None
    try:
        folder().mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder() / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if descriptor is None:  # else a file system without locks
            raise UserError(
                f"{what}: {folder()}: {error.strerror}; set XDG_CACHE_HOME to a folder that can be "
                "written to"
            ) from None
    try:
        for path in folder().glob(f".*{UNFINISHED}"):
            shutil.rmtree(path, ignore_errors=True)
        yield
    finally:
        os.close(descriptor)


def folder_bytes(directory: Path) -> int:
    """What the files in a folder take, without what its links lead to."""
    found = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in found)


def _check_room(what: str, need: int, cache_gib: int) -> None:
    held = folder_bytes(folder())
    what = f"{what}: its random weights need {need / GIB:.2f} GiB"
    if held + need > cache_gib * GIB:
        raise UserError(
            f"{what}, and {folder()} may take {cache_gib} GiB and holds {held / GIB:.2f}; "
            "'decodebench cache clear' makes room, 'limits: {cache_gib: N}' allows more"
        )
    free = shutil.disk_usage(folder()).free
    if need > free:
        raise UserError(f"{what}, and {folder()} is on a disk with {free / GIB:.2f} GiB left")


def _make(target: Path, write: Callable[[Path], Mapping[str, str]]) -> None:
    making = target.with_name(f".{target.name}{UNFINISHED}")
    try:
        making.mkdir()
        digests = write(making)
        sync_folder(making)
        rename_folder(making, target)
    except BaseException as error:
        shutil.rmtree(making, ignore_errors=True)
        if isinstance(error, OSError):  # a full disk does not say which file it would not take
            error.filename = str(target)
        raise
    known = FileDigests()
    for name, digest in digests.items():
        known.remember(target / name, digest)
    known.save()


def write_texts(directory: Path, contents: Mapping[str, str]) -> None:
    """Files by name, on the disk when this returns. Raises `OSError`."""
    for name, text in contents.items():
        with (directory / name).open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def progress(what: str, total: int, target: Path) -> Iterator[Callable[[int], object]]:
    """What is told on stderr while many bytes are written: one line, with the share that is done
    where somebody watches."""
    line = f"{what}: {total / GIB:.2f} GiB of random weights into {target}"
    watched = sys.stderr.isatty()
    if total < TOLD_FROM_BYTES:
        yield lambda done: None
        return
    if not watched:
        print(line, file=sys.stderr, flush=True)
        yield lambda done: None
        return
    shown = -1

    def tell(done: int) -> None:
        nonlocal shown
        if (percent := 100 * done // total) != shown:
            shown = percent
            print(f"\r{line} {percent}%", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        print(file=sys.stderr)
