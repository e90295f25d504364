"""The records of a data set that lies in files of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path, PurePath

from harness.core.errors import UserError
from harness.core.files import looked_for, user_path
from harness.core.nouns import Workload
from workloads import WorkloadInfo, speed_bench
from workloads.files.folders import data_files, splits_of
from workloads.readers import Budget, Record, read_records


def local_records(
    workload: Workload, info: WorkloadInfo, asked: str | None, budget: Budget | None
) -> Iterator[Record]:
    """Yield the records of the file, or of the folder's files, that a workload names as its source.

    Args:
        workload: with checked options.
        info: of the workload; of several configurations the chosen one's.
        asked: the split that the options name; None: the data set's usual one.
        budget: how much is read.

    Raises:
        UserError: for files that are not there, cannot be read, or are of another split.
    """
    path = user_path(workload.source, f"workload {workload.name}: source")
    if workload.name == speed_bench.NAME:
        path = speed_bench.place(path, info.config or speed_bench.QUALITATIVE)
    split = asked or info.split
    if path.is_dir():
        files = data_files(path, split, must_have_split=asked is not None, config=info.config)
    elif path.exists():
        if asked is not None:
            _check_split(workload, path, split, info.split)
        files = [path]
    else:
        close = get_close_matches(workload.source, ["bundled", "hub"], n=1)
        expected = f"; expected bundled, hub or a path{looked_for(path)}"
        hint = f"; did you mean '{close[0]}'?" if close else expected
        raise UserError(
            f"workload {workload.name}: source '{workload.source}' does not exist{hint}"
        )
    for file in files:
        yield from read_records(file, budget)


def _check_split(workload: Workload, file: Path, split: str, usual: str) -> None:
    """Raise `UserError` for a split that one file, all of which is read, does not say it is; one
    that says nothing is of the data set's usual one."""
    folder = PurePath(file.parent.name if file.parent.name.isalpha() else "")
    told = splits_of(PurePath(file.name)) or splits_of(folder)
    if split not in (told or {usual}):
        of = f"of split '{min(told)}'" if told else "that names no split"
        raise UserError(
            f"workload {workload.name}: option 'split': '{split}', and source '{workload.source}' "
            f"is one file {of}; expected a folder, or no 'split'"
        )
