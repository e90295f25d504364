"""Reads records from data files: JSON lines, JSON, CSV and Parquet, the first three also gzipped.

Every problem with a file is a `UserError` that names the file and, where there is one, the line.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import itertools
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from harness.core import UserError
from harness.files import MIB, check_plain, open_plain, size

Record = tuple[str, Mapping[str, Any]]
"""Where a record stands ("FILE, line 3") and its fields."""

MAX_LINE_BYTES = 16 * MIB
"""Of one line, one CSV value, one Parquet row: a hundred times the longest row of any workload."""
MAX_ARRAY_BYTES = 64 * MIB
"""Of a JSON array, which is parsed whole and takes many times its size in memory."""
PARQUET_ROWS = 64
MAX_ENTRIES = 10_000
"""Files and folders looked at to find a folder's data files."""
SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".jsonl.gz", ".json.gz", ".csv.gz")
_SPLIT_WORDS = {
    "train": {"train", "training"},
    "test": {"test"},
    "validation": {"validation", "valid", "val", "dev"},
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is read of one file. What the limits of an experiment are called stands in the
    messages; None: no bound."""

    bytes: int | None = None
    """Unpacked."""
    rows: int | None = None
    """Of one workload, in all its files."""

    def check_bytes(self, path: Path, count: int) -> None:
        """Raise `UserError` for more than is read."""
        if self.bytes is not None and count > self.bytes:
            raise UserError(
                f"{path}: more than {size(self.bytes)} unpacked; "
                f"'limits: {{file_mib: N}}' allows more"
            )

    def counted(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records, as far as they are read. Raises `UserError` for more of them."""
        for number, record in enumerate(records, start=1):
            if self.rows is not None and number > self.rows:
                raise UserError(
                    f"{record[0]}: more than {self.rows:,} rows; "
                    f"'limits: {{file_rows: N}}' allows more"
                )
            yield record


UNBOUNDED = Bounds()


def read_records(path: Path, bounds: Bounds = UNBOUNDED) -> Iterator[Record]:
    """Yield the records of one file, in file order.

    Raises:
        UserError: when the file is no plain file, cannot be read, is of no known kind, is broken,
            is empty, or holds more bytes than `bounds` allow.
    """
    kind = _kind(path)
    if kind is None:
        raise UserError(f"{path}: unknown kind of file; expected one of: {', '.join(SUFFIXES)}")
    reader = {".jsonl": _json_lines, ".json": _json, ".csv": _csv, ".parquet": _parquet}[kind]
    found = False
    with _clear_errors(path):
        for record in reader(path, bounds):
            found = True
            yield record
    if not found:
        raise UserError(f"{path}: the file holds no rows")


def text_lines(path: Path, bounds: Bounds = UNBOUNDED) -> Iterator[tuple[str, str]]:
    """Yield where each line of a text file stands and the line; raises `UserError` as above."""
    with _clear_errors(path):
        for number, line in _lines(path, bounds):
            yield f"{path}, line {number}", line


@contextlib.contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    """Turn what reading a file may raise into one line."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: broken gzip file: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    except MemoryError:
        raise UserError(f"{path}: does not fit into this machine's memory") from None


def data_files(folder: Path, split: str, *, must_have_split: bool = False) -> list[Path]:
    """The data files of a folder (of its subfolders when it has none itself), sorted by path.

    A file belongs to a split when its name holds the split's name as a word, as in
    ``test-00000-of-00001.parquet``. When no name holds any split's name, all files are taken,
    unless `must_have_split`.

    Raises:
        UserError: when the folder holds no data file, or none of the split.
    """
    files = _known_files(folder.iterdir(), folder) or _known_files(folder.rglob("*"), folder)
    if not files:
        raise UserError(f"{folder}: no data file in this folder; expected {', '.join(SUFFIXES)}")
    splits = {path: _splits_in(path.name) for path in files}
    if not any(splits.values()) and not must_have_split:
        return files
    wanted = [path for path in files if split in splits[path]]
    if not wanted:
        there = sorted(set(itertools.chain.from_iterable(splits.values()))) or ["none"]
        raise UserError(f"{folder}: no file of split '{split}'; splits there: {', '.join(there)}")
    return wanted


def _known_files(paths: Iterator[Path], folder: Path) -> list[Path]:
    found = []
    try:
        for number, path in enumerate(paths):
            if number == MAX_ENTRIES:
                raise UserError(f"{folder}: more than {MAX_ENTRIES:,} entries; name a data file")
            if _kind(path) and path.is_file() and not path.name.startswith("."):
                found.append(path)
    except OSError as error:
        raise UserError(f"{folder}: cannot be read: {error.strerror or error}") from None
    return sorted(found)


def _splits_in(name: str) -> set[str]:
    words = set(re.split(r"[^a-z]+", name.lower()))
    return {split for split, names in _SPLIT_WORDS.items() if words & names}


def _kind(path: Path) -> str | None:
    name = path.name.lower()
    suffix = next((s for s in SUFFIXES if name.endswith(s)), None)
    return suffix.removesuffix(".gz") if suffix else None


def _lines(path: Path, bounds: Bounds) -> Iterator[tuple[int, str]]:
    """Numbered lines from 1, decoded as UTF-8, a byte order mark dropped."""
    with open_plain(path) as packed:
        unpacks = path.suffix.lower() == ".gz"
        file = cast(BinaryIO, gzip.GzipFile(fileobj=packed)) if unpacks else packed
        total, number = 0, 0
        # in pieces, since a small gzip file may hold a line of many gigabytes
        while line := file.readline(MAX_LINE_BYTES):
            number, total = number + 1, total + len(line)
            if len(line) == MAX_LINE_BYTES:
                raise UserError(f"{path}, line {number}: longer than {size(MAX_LINE_BYTES)}")
            bounds.check_bytes(path, total)
            try:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{path}, line {number}: not UTF-8 text (byte {line[error.start]:#04x} at "
                    f"position {error.start + 1} of the line)"
                ) from None


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        position = f"column {error.colno}" if error.lineno == 1 else f"its line {error.lineno}"
        raise UserError(f"{where}: not valid JSON: {error.msg} ({position})") from None
    except RecursionError:
        raise UserError(f"{where}: JSON that is nested too deeply") from None
    except ValueError as error:  # Python reads no number of more than 4,300 digits
        raise UserError(f"{where}: not valid JSON: {error}") from None


def _object(value: Any, where: str) -> Record:
    if not isinstance(value, dict):
        raise UserError(f"{where}: expected a JSON object, got {type(value).__name__}")
    return where, value


def _json_lines(path: Path, bounds: Bounds) -> Iterator[Record]:
    for number, line in _lines(path, bounds):
        if line.strip():
            where = f"{path}, line {number}"
            yield _object(_parsed(line.strip(), where), where)


def _json(path: Path, bounds: Bounds) -> Iterator[Record]:
    """An array of objects, or, as some exports have it under this name, one object a line."""
    first = next((line.lstrip()[0] for _, line in _lines(path, bounds) if line.strip()), "")
    if first != "[":
        yield from _json_lines(path, bounds)
        return
    lines: list[str] = []
    total = 0
    for _, line in _lines(path, bounds):
        total += len(line)
        if total > MAX_ARRAY_BYTES:
            most = size(MAX_ARRAY_BYTES)
            raise UserError(f"{path}: a JSON array of more than {most}; use JSON lines instead")
        lines.append(line)
    for number, value in enumerate(_parsed("".join(lines), str(path)), start=1):
        yield _object(value, f"{path}, row {number}")


def _csv(path: Path, bounds: Bounds) -> Iterator[Record]:
    """Comma-separated values under a header line; a row is named by the line it begins on."""
    csv.field_size_limit(MAX_LINE_BYTES)
    rows = csv.DictReader((line for _, line in _lines(path, bounds)), strict=True)
    where = f"{path}, line 1"
    while True:
        try:
            columns = rows.fieldnames or ()
            where = f"{path}, line {rows.reader.line_num + 1}"
            row = next(rows, None)
        except csv.Error as error:
            raise UserError(f"{where}: not valid CSV: {error}") from None
        if row is None:
            return
        if None in row:
            raise UserError(f"{where}: more values than the {len(columns)} columns")
        yield where, row


def _parquet(path: Path, bounds: Bounds) -> Iterator[Record]:
    import pyarrow
    from pyarrow import parquet

    check_plain(path)
    total, number = 0, 0
    try:
        with parquet.ParquetFile(path) as file:
            # few rows at once: a column may hold one long text, written out for each row
            for batch in file.iter_batches(batch_size=PARQUET_ROWS):
                total += batch.nbytes
                bounds.check_bytes(path, total)
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (pyarrow.ArrowException, ValueError) as error:
        first = str(error).split("\n")[0]
        raise UserError(f"{path}: broken Parquet file: {first}") from None
