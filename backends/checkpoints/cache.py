"""What decodebench keeps in the user's cache folder: generated shapes, compiled kernels and the
answers that trainings have in common."""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from backends.checkpoints.shapes import making
from harness.core.errors import UserError, nearest
from harness.core.files import cache_folder, rename_folder

SHAPE = re.compile(r"[^.].*-[0-9a-f]{12}")
KERNELS = "decodebench-native-*.so"
ANSWERS = "answers"


@dataclass(frozen=True, slots=True)
class Kept:
    """One thing in the cache, which is made anew when it is needed and not there."""

    name: str
    kind: str
    """"shape", "kernels" or "answers"."""
    bytes: int
    used_at: str
    """Wall clock, ISO 8601 in UTC: the last use, for kernels when they were compiled."""
    path: str

    @property
    def short_name(self) -> str:
        """Without the digest; of all kernels ``kernels``, of all answers ``answers``."""
        return self.name.rpartition("-")[0] if self.kind == "shape" else self.kind


def kept() -> list[Kept]:
    """All there is, by kind and name. Raises `OSError`."""
    shapes = [path for path in _inside(making.folder()) if SHAPE.fullmatch(path.name)]
    kernels = [path for path in _inside(cache_folder()) if path.match(KERNELS)]
    answers = [path for path in _inside(cache_folder() / ANSWERS) if path.match("[!.]*.jsonl")]
    found = {"shape": shapes, "kernels": kernels, "answers": answers}
    return [_kept(path, kind) for kind, paths in found.items() for path in paths]


def choose(found: Sequence[Kept], name: str | None) -> list[Kept]:
    """Those that `name` means, with or without its digest; all for None. Raises `UserError` where
    there is none."""
    chosen = [one for one in found if name in (None, one.name, one.short_name)]
    if name is not None and not chosen:
        known = [n for one in found for n in (one.name, one.short_name)]
        hint = "'decodebench cache' lists what is" if known else "the cache is empty"
        hint = nearest(name, known) if difflib.get_close_matches(name, known) else hint
        raise UserError(f"cache: nothing is called '{name}'; {hint}")
    return chosen


def remove(one: Kept) -> None:
    """Remove it, and of a link the link alone. A shape is hidden before its files go, so that half
    a one is never taken for whole. Raises `UserError` where the folder of all is a link, which may
    lead to anybody's files, and `OSError`."""
    path = Path(one.path)
    if path.parent.is_symlink():
        raise UserError(f"{path.parent}: a link, which is not followed; remove {one.name} by hand")
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    with making.writing("cache"):
        going = path.with_name(f".{path.name}{making.UNFINISHED}")
        rename_folder(path, going)
        shutil.rmtree(going)


def _inside(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []


def _kept(path: Path, kind: str) -> Kept:
    state = path.lstat()
    is_folder = path.is_dir() and not path.is_symlink()
    size = making.folder_bytes(path) if is_folder else state.st_size
    used = datetime.fromtimestamp(state.st_mtime, UTC).isoformat(timespec="seconds")
    return Kept(path.name, kind, size, used, str(path))
