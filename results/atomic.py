"""Files that are either whole or absent, whatever happens to the process or the machine.

A file is written under a temporary name in its own folder, flushed to the disk, and renamed. The
temporary name holds the writer's process id, so that what a killed writer left can be told from
what a living one is writing.
"""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

_STALE_AFTER_S = 3600.0
_serial = itertools.count()


def write_temporary(target: Path, data: bytes) -> Path:
    """Write `data` beside `target`, flushed to the disk, and return the temporary path.

    Raises `OSError` (a full disk, say) after removing what was written.
    """
    path = target.with_name(f".{target.name}.{os.getpid()}-{next(_serial)}.tmp")
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):  # a full disk does not say which file it would not take
            error.filename = str(target)
        raise
    return path


def write_atomic(target: Path, data: bytes) -> None:
    """Replace `target` by `data` in one step. Raises `OSError` and leaves `target` as it was."""
    temporary = write_temporary(target, data)
    try:
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make the renames in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_stale(folder: Path) -> None:
    """Remove temporary files whose writer is gone, or which are older than an hour."""
    for path in folder.glob(".*.tmp"):
        owner = path.name.removesuffix(".tmp").rpartition(".")[2].partition("-")[0]
        try:
            old = time.time() - path.stat().st_mtime > _STALE_AFTER_S
            if old or not owner.isdecimal() or not _is_alive(int(owner)):
                path.unlink()
        except FileNotFoundError:
            continue


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    except OverflowError:  # no process has such an id
        return False
    return True
