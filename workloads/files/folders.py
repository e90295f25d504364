"""The data files of a folder: those of a data set's configuration and split, as the hub and people
lay them out (``test.jsonl``, ``main/test-00000-of-00001.parquet``, ``main/test/0000.parquet``)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path, PurePath

from harness.core.errors import UserError
from workloads.readers import SUFFIXES, kind_of

MAX_ENTRIES = 10_000
"""Files and folders looked at to find a folder's data files."""
_SPLIT_WORDS = {
    "train": {"train", "training"},
    "test": {"test"},
    "validation": {"validation", "valid", "val", "dev"},
}
_MOST_NAMED = 4


def data_files(
    folder: Path,
    split: str | None = None,
    *,
    must_have_split: bool = False,
    config: str | None = None,
) -> list[Path]:
    """The data files of a folder (of its subfolders when it has none itself), sorted by path: all
    of them, or those of a split.

    A file belongs to a split when its name holds the split's name as a word, as in
    ``test-00000-of-00001.parquet``, or else the nearest of its folders that names one. When nothing
    names any split, all files are taken, unless `must_have_split`.

    Args:
        folder: where to look.
        split: whose files are wanted; None: all files.
        must_have_split: whether files of no known split are none of this one's.
        config: of a data set that has several; a subfolder of this name is where its files are.

    Raises:
        UserError: when the folder holds no data file, or none of the split, or the split in several
            subfolders, of which each may be another data set.
    """
    files = _of_config(folder, config)
    if not files:
        raise UserError(f"{folder}: no data file in this folder; expected {', '.join(SUFFIXES)}")
    if split is None:
        return files
    splits = {path: splits_of(path.relative_to(folder)) for path in files}
    wanted = files
    if any(splits.values()) or must_have_split:
        wanted = [path for path in files if split in splits[path]]
    if not wanted:
        there = sorted(set(itertools.chain.from_iterable(splits.values()))) or ["none"]
        raise UserError(f"{folder}: no file of split '{split}'; splits there: {', '.join(there)}")
    _refuse_several(folder, wanted, split)
    return wanted


def _of_config(folder: Path, config: str | None) -> list[Path]:
    """The data files of the configuration's subfolder where there is one, else of the folder."""
    inner = folder / config if config is not None else folder
    if inner != folder and inner.is_dir() and (files := _known_files(inner.rglob("*"), inner)):
        return files
    if files := _known_files(folder.iterdir(), folder):
        return files
    files = _known_files(folder.rglob("*"), folder)
    of_config = [path for path in files if config in path.relative_to(folder).parent.parts]
    return of_config or files


def _refuse_several(folder: Path, files: list[Path], split: str) -> None:
    """Raise `UserError` where the files of a split lie in subfolders that are told apart by more
    than the split's name: then the rows of several data sets would be taken for one."""
    parents = {path: path.relative_to(folder).parent for path in files}
    places: dict[tuple[str, ...], Path] = {}
    for path, parent in parents.items():
        places.setdefault(tuple(p for p in parent.parts if not _splits_in(p)), path.parent)
    if len(places) > 1:
        named = [f"'{place.relative_to(folder)}'" for place in places.values()]
        more = ", ..." if len(named) > _MOST_NAMED else ""
        raise UserError(
            f"{folder}: several subfolders hold files of split '{split}': "
            f"{', '.join(named[:_MOST_NAMED])}{more}; expected one of them as source"
        )


def _known_files(paths: Iterator[Path], folder: Path) -> list[Path]:
    found = []
    try:
        for number, path in enumerate(paths):
            if number == MAX_ENTRIES:
                raise UserError(f"{folder}: more than {MAX_ENTRIES:,} entries; name a data file")
            if kind_of(path) and path.is_file() and not path.name.startswith("."):
                found.append(path)
    except OSError as error:
        raise UserError(f"{folder}: cannot be read: {error.strerror or error}") from None
    return sorted(found)


def splits_of(path: PurePath) -> set[str]:
    """The splits that a file's name speaks of, else those of the nearest of its folders that names
    one."""
    return next((found for part in reversed(path.parts) if (found := _splits_in(part))), set())


def _splits_in(name: str) -> set[str]:
    words = set(re.split(r"[^a-z]+", name.lower()))
    return {split for split, names in _SPLIT_WORDS.items() if words & names}
