"""Reads records from data files: JSON lines, JSON, CSV, TSV and Parquet, all but the last gzipped
too.

Every problem with a file is a `UserError` that names the file and, where there is one, the line.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from harness.core.errors import UserError
from harness.core.files import MIB, check_plain, open_plain, size

Record = tuple[str, Mapping[str, Any]]
"""Where a record stands ("FILE, line 3") and its fields."""

MAX_ROW_BYTES = 4 * MIB
"""Of one row: many times the longest of any workload."""
MAX_BLANK_LINES = 100_000
MAX_ARRAY_BYTES = 64 * MIB
"""Of a JSON array, which is parsed whole and takes many times its size in memory."""
PARQUET_ROWS = 16
_PLAIN = (".jsonl", ".json", ".csv", ".tsv")
SUFFIXES = (*_PLAIN, ".parquet", *(f"{name}.gz" for name in _PLAIN))


@dataclass(slots=True)
class Budget:
    """How much is still read, infinite unless somebody says otherwise; and what there is to be said
    of what was read.

    The messages name the keys of an experiment's `limits`.
    """

    bytes: float = math.inf
    """Unpacked."""
    rows: float = math.inf
    remarks: list[str] = field(default_factory=list)
    """A line each."""

    def spend_bytes(self, where: str, count: int) -> None:
        """Raises `UserError` when more is read than was allowed."""
        self.bytes -= count
        if self.bytes < 0:
            raise UserError(
                f"{where}: more bytes (unpacked) than are read; 'limits: {{data_mib: N}}' allows "
                "more"
            )

    def spend_row(self, where: str) -> None:
        """Raises `UserError` when more is read than was allowed."""
        self.rows -= 1
        if self.rows < 0:
            raise UserError(
                f"{where}: more rows than are read; 'limits: {{data_rows: N}}' allows more"
            )


def read_records(path: Path, budget: Budget | None = None) -> Iterator[Record]:
    """Yield the records of one file, in file order.

    Raises:
        UserError: when the file is no plain file, cannot be read, is of no known kind, is broken,
            is empty, or holds more than `budget` has left.
    """
    kind = kind_of(path)
    if kind is None:
        raise UserError(f"{path}: unknown kind of file; expected one of: {', '.join(SUFFIXES)}")
    reader = _READERS[kind]
    found = False
    with _clear_errors(path):
        for record in reader(path, budget := budget or Budget()):
            found = True
            budget.spend_row(record[0])
            yield record
    if not found:
        raise UserError(f"{path}: the file holds no rows")


def text_lines(path: Path, budget: Budget | None = None) -> Iterator[tuple[str, str]]:
    """Yield where each line of a text file stands and the line; raises `UserError` as above."""
    with _clear_errors(path):
        for number, line in _lines(path, budget or Budget()):
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


def kind_of(path: Path) -> str | None:
    """The kind of data file that a name speaks of, as one of `SUFFIXES`; None for no kind."""
    name = path.name.lower()
    suffix = next((s for s in SUFFIXES if name.endswith(s)), None)
    return suffix.removesuffix(".gz") if suffix else None


def _lines(path: Path, budget: Budget) -> Iterator[tuple[int, str]]:
    """Numbered lines from 1, decoded as UTF-8, a byte order mark dropped."""
    with _unpacked(path) as file:
        number = blank = 0
        # in pieces, since a small gzip file may hold a line of many gigabytes
        while line := file.readline(MAX_ROW_BYTES):
            number += 1
            where = f"{path}, line {number}"
            budget.spend_bytes(where, len(line))
            blank = 0 if line.strip() else blank + 1
            if len(line) >= MAX_ROW_BYTES:
                raise UserError(f"{where}: longer than {size(MAX_ROW_BYTES)}")
            if blank > MAX_BLANK_LINES:
                raise UserError(f"{where}: more than {MAX_BLANK_LINES:,} blank lines in a row")
            yield number, _decoded(line, where, "utf-8-sig" if number == 1 else "utf-8")


@contextlib.contextmanager
def _unpacked(path: Path) -> Iterator[BinaryIO]:
    with open_plain(path) as file:
        if path.suffix.lower() != ".gz":
            yield file
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield cast(BinaryIO, unpacked)


def _decoded(content: bytes, where: str, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        before = content.rfind(b"\n", 0, error.start) + 1
        lines = content.count(b"\n", 0, before)
        place = f"{where}, line {lines + 1}" if lines else where
        raise UserError(
            f"{place}: not UTF-8 text (byte {content[error.start]:#04x} at position "
            f"{error.start - before + 1} of the line)"
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


def _json_lines(path: Path, budget: Budget) -> Iterator[Record]:
    for number, line in _lines(path, budget):
        if line.strip():
            where = f"{path}, line {number}"
            yield _object(_parsed(line.strip(), where), where)


def _json(path: Path, budget: Budget) -> Iterator[Record]:
    """An array of objects, or, as some exports have it under this name, one object a line."""
    first = next((line.lstrip()[0] for _, line in _lines(path, Budget()) if line.strip()), "")
    if first != "[":
        yield from _json_lines(path, budget)
        return
    with _unpacked(path) as file:
        content = file.read(MAX_ARRAY_BYTES + 1)
    budget.spend_bytes(str(path), len(content))
    if len(content) > MAX_ARRAY_BYTES:
        most = size(MAX_ARRAY_BYTES)
        raise UserError(f"{path}: a JSON array of more than {most}; use JSON lines instead")
    text = _decoded(content, str(path), "utf-8-sig")
    for number, value in enumerate(_parsed(text, str(path)), start=1):
        yield _object(value, f"{path}, row {number}")


def _csv(path: Path, budget: Budget) -> Iterator[Record]:
    return _separated(path, budget, "CSV")


def _tsv(path: Path, budget: Budget) -> Iterator[Record]:
    """As GLUE has its data sets: a quote is a sign like any other."""
    return _separated(path, budget, "TSV", delimiter="\t", quoting=csv.QUOTE_NONE)


def _separated(path: Path, budget: Budget, kind: str, **form: Any) -> Iterator[Record]:
    """Separated values under a header line; a row is named by the line it begins on. They have no
    sign for nothing but an empty cell."""
    csv.field_size_limit(MAX_ROW_BYTES)
    rows = csv.DictReader(_short_rows(path, budget, begun := [0]), strict=True, **form)
    where = f"{path}, line 1"
    while True:
        try:
            columns = rows.fieldnames or ()
            where = f"{path}, line {rows.reader.line_num + 1}"
            begun[0] = 0
            row = next(rows, None)
        except csv.Error as error:
            raise UserError(f"{where}: not valid {kind}: {error}") from None
        if row is None:
            return
        if None in row:
            raise UserError(f"{where}: more values than the {len(columns)} columns")
        yield where, {key: cell if cell and cell.strip() else None for key, cell in row.items()}


def _short_rows(path: Path, budget: Budget, begun: list[int]) -> Iterator[str]:
    """The lines of a CSV file. A row goes over as many as a quote stays open; `begun` has the
    characters of the one under way."""
    for number, line in _lines(path, budget):
        begun[0] += len(line)
        if begun[0] > MAX_ROW_BYTES:
            raise UserError(f"{path}, line {number}: a row of more than {size(MAX_ROW_BYTES)}")
        yield line


def _parquet(path: Path, budget: Budget) -> Iterator[Record]:
    import pyarrow
    from pyarrow import parquet

    check_plain(path)
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            groups = range(file.metadata.num_row_groups)
            unpacked = sum(file.metadata.row_group(index).total_byte_size for index in groups)
            budget.spend_bytes(str(path), unpacked)
            # few rows at once: a text that stands there once is written out for each row
            for batch in file.iter_batches(batch_size=PARQUET_ROWS):
                if batch.nbytes > PARQUET_ROWS * MAX_ROW_BYTES:
                    raise UserError(f"{path}, row {number + 1}: rows of over {size(MAX_ROW_BYTES)}")
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (pyarrow.ArrowException, ValueError) as error:
        first = str(error).split("\n")[0]
        raise UserError(f"{path}: broken Parquet file: {first}") from None


_READERS = {
    ".jsonl": _json_lines,
    ".json": _json,
    ".csv": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
}
