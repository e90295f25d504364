"""Files that a user names, read with care, and files of our own, written whole or not at all.

What a user names is opened only when it is a plain file, and read only up to a bound: a named pipe
never ends and neither does a device such as /dev/zero.

A file of ours is written under a temporary name in its own folder, flushed to the disk, and
renamed, whatever happens to the process or the machine. The temporary name holds the writer's
process id and machine, which tell what a killed writer left from what a living one is writing.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import itertools
import os
import re
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from harness.core.errors import UserError

MIB = 2**20
LOCK = ".lock"
"""In a folder whose file system locks files alone."""
LOCKLESS = "its file system has no locks, so see to it that no other {} writes into it"
_STALE_AFTER_S = 3600.0
_LONGEST_HOST, _LONGEST_NAME = 32, 160
_serial = itertools.count()
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def cache_folder() -> Path:
    """Where what can be made again is kept between runs; it need not exist. Without a home it is
    below a device, where nothing can be."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        base = Path(os.devnull)
    return base / "decodebench"


def user_path(text: str, where: str) -> Path:
    """The path that a user wrote, ``~`` expanded; it need not exist. Raises `UserError`, which
    begins with `where`, for what can be no path or may not be looked at."""
    try:
        path = Path(text).expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{where} '{text[:60]}' is no usable path: {reason}") from None
    return path


def looked_for(path: Path) -> str:
    """For an error's line: where a relative path that is not there was looked for, which is below
    the working directory, and not beside the file that names it; empty for an absolute one."""
    return "" if path.is_absolute() else f" (looked for {path.absolute()})"


def open_plain(path: Path) -> BufferedReader:
    """Open a plain file for reading bytes. Raises `UserError` for a folder, a pipe, a device or a
    socket, and `OSError` for what is missing or may not be read."""
    check_plain(path)
    return path.open("rb")


def read_plain(path: Path) -> bytes:
    """All of a plain file of ours. Raises `FileNotFoundError`, and `UserError` for another kind of
    file and one that cannot be read."""
    try:
        with open_plain(path) as file:
            return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


def sha256(path: Path) -> str:
    """Of a plain file, in hex. Raises `UserError` and `OSError` as `open_plain`."""
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_plain(path: Path) -> None:
    """Raise `UserError` for a folder, a pipe, a device or a socket, also behind a link, and
    `OSError` for what is missing."""
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind != stat.S_IFREG:
        raise UserError(f"{path}: expected a plain file, found {KINDS.get(kind, 'something else')}")


def read_text(path: Path, most_bytes: int) -> str:
    """The UTF-8 text of a plain file of up to `most_bytes`. Raises `UserError` for another kind of
    file and a larger one, `OSError`, and `UnicodeDecodeError`."""
    with open_plain(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise UserError(f"{path}: larger than {size(most_bytes)}, more than is read of such a file")
    return content.decode()


def size(count: int) -> str:
    """A number of bytes for people: ``2 MiB``, ``700 bytes``."""
    return f"{count / MIB:,.4g} MiB" if count >= MIB // 2 else f"{count:,} bytes"


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A temporary path beside `target`, for what is written piece by piece. On leaving, the file is
    flushed to the disk and replaces `target` in one step. What killed writers left goes first.

    A writer that removes the temporary file gives up: `target` stays as it was, as it does when
    anything is raised. Raises `OSError`."""
    if (target.exists() and not target.is_file()) or target.parent.resolve() == Path("/dev"):
        what = "a folder" if target.is_dir() else "a device or a pipe"
        raise OSError(errno.EINVAL, f"is {what}", str(target))
    remove_stale(target.parent, target.name)
    path = _temporary(target)
    try:
        yield path
        if path.exists():
            _flush(path)
            path.replace(target)
            sync_folder(target.parent)
    except BaseException as error:
        with suppress(OSError):  # a read-only disk refuses that too
            path.unlink(missing_ok=True)
        # a full disk does not say which file it would not take
        if isinstance(error, OSError) and error.filename in (None, str(path)):
            error.filename = str(target)
        raise


def write_atomic(target: Path, data: bytes) -> None:
    """Replace `target` by `data` in one step. Raises `OSError` and leaves `target` as it was."""
    with replacing(target) as temporary:
        temporary.write_bytes(data)


def check_writable(path: Path, option: str) -> None:
    """Before work whose outcome a file is to hold. Raises `UserError` if it cannot be written."""
    try:
        with replacing(path) as temporary:
            temporary.touch()
            temporary.unlink()  # nothing replaces what is there
    except OSError as error:
        told = f"{option} {path}: cannot be written: {error.strerror}"
        raise UserError(f"{told}; expected a file in a folder that is there") from None


def write_temporary(target: Path, data: bytes) -> Path:
    """Write `data` beside `target`, flushed to the disk, and return the temporary path: for a
    caller that renames it later. Raises `OSError` after removing what was written."""
    path = _temporary(target)
    try:
        path.write_bytes(data)
        _flush(path)
    except BaseException as error:
        with suppress(OSError):  # a read-only disk refuses that too
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):  # a full disk does not say which file it would not take
            error.filename = str(target)
        raise
    return path


@contextmanager
def only_writer(folder: Path, who: str = "run", *, writes: bool = True) -> Iterator[None]:
    """Hold a folder, which is made where there is none, as the only `who` that writes into it: two
    would mix what they store. The lock is the kernel's, so that it ends with the process, however
    that ends. It is the folder's own; NFS locks only what is open for writing, and there a file in
    it is held. Unless it `writes`, no such file is made. Raises `UserError` for one that is held or
    cannot be made."""
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            locked, file = _hold(folder, os.O_RDONLY, held), folder / LOCK
            if not locked and (writes or file.exists()):
                locked = _hold(file, os.O_RDWR | os.O_CREAT, held)
            if not locked and writes:
                print(f"warning: {folder}: {LOCKLESS.format(who)}", file=sys.stderr)
        except BlockingIOError:
            raise UserError(
                f"{folder}: another {who} is writing into it; let it end, or name another --out"
            ) from None
        except OSError as error:
            raise UserError(f"{folder}: {error.strerror}; name another --out") from None
        yield


def _hold(path: Path, flags: int, held: ExitStack) -> bool:
    """Lock a path; whether its file system can. Raises `OSError` where it cannot be opened, and
    `BlockingIOError` where another has it."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    held.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Wait until no other process is in here with the same `lock`, a file that is made and stays.
    The lock is the kernel's; where its file system has none, nobody waits. Raises `OSError` for a
    file that cannot be made."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def rename_folder(folder: Path, target: Path) -> None:
    """Give a folder another name on the same disk, in one step that survives a power cut. Raises
    `OSError`."""
    folder.rename(target)
    sync_folder(target.parent)


def move(path: Path, target: Path) -> None:
    """Give a file or a folder another place on the same disk, whose folder is made, in one step. A
    file that is there gives way. Raises `OSError`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    path.replace(target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make the renames in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_stale(folder: Path, name: str | None = None) -> None:
    """Remove temporary files, of the target `name` or of all, whose writer on this machine is
    gone, or which are older than an hour."""
    for path in folder.glob(f".{'*' if name is None else glob.escape(_short(name))}.*.tmp"):
        writer = path.name.removesuffix(".tmp").rpartition(".")[2]
        owner, _, where = writer.partition("-")
        elsewhere = "-" in where and where.partition("-")[2] != _host()
        with suppress(FileNotFoundError, PermissionError):  # another has removed or owns it
            old = time.time() - path.stat().st_mtime > _STALE_AFTER_S
            if old or (not elsewhere and (not owner.isdecimal() or not _is_alive(int(owner)))):
                path.unlink()


def _temporary(target: Path) -> Path:
    return target.with_name(f".{_short(target.name)}.{os.getpid()}-{next(_serial)}-{_host()}.tmp")


def _short(name: str) -> str:
    """As much of it as leaves room for the rest of a temporary name."""
    told = os.fsencode(name)
    return name if len(told) <= _LONGEST_NAME else told[:_LONGEST_NAME].decode(errors="ignore")


def _host() -> str:
    """This machine's name, without what has a meaning in a temporary name."""
    return re.sub(r"[^0-9A-Za-z_-]", "_", socket.gethostname())[:_LONGEST_HOST]


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _is_alive(process_id: int) -> bool:
    try:
        with suppress(PermissionError):
            os.kill(process_id, 0)
    except (ProcessLookupError, OverflowError):  # no process has so large an id
        return False
    return True
