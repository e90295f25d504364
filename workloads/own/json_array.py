"""Reads a JSON array of objects one object at a time: exported conversations fill hundreds of MiB,
which parsed whole would take many times that in memory."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from harness.core.errors import UserError
from harness.core.files import open_plain, size
from workloads.readers import MAX_ROW_BYTES, Budget, Record, read_records

CHUNK = 1 << 20
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def read_array(path: Path, budget: Budget | None = None) -> Iterator[Record]:
    """Yield each object of a file that holds one array, gzipped or not; of one that holds an
    object a line instead, these.

    Raises:
        UserError: when the file cannot be read or is broken, with the line; for an object of more
            than `MAX_ROW_BYTES`; and for more than `budget` has left.
    """
    try:
        with open_plain(path) as plain:
            packed = path.suffix.lower() == ".gz"
            file = gzip.GzipFile(fileobj=plain) if packed else plain
            text = _ArrayText(path, cast(BinaryIO, file), budget or Budget())
            if text.next_sign() == "[":
                yield from text.objects()
                return
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: broken gzip file: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    yield from read_records(path, budget)


class _ArrayText:
    """The text of a file, as much of it as an object needs; what was used is forgotten."""

    def __init__(self, path: Path, file: BinaryIO, budget: Budget) -> None:
        self._path, self._file, self._budget = path, file, budget
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._text, self._at, self._line, self._ended = "", 0, 1, False

    def next_sign(self) -> str:
        """The next character that is no white space, not taken; empty at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._use(found.end() if found else self._at)
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def objects(self) -> Iterator[Record]:
        """The elements, from the opening bracket on."""
        self._use(self._at + 1)
        number = 0
        while (sign := self.next_sign()) != "]" or number == 0:
            if number:
                if sign != ",":
                    raise self._broken(f"expected ',' or ']', got {sign or 'the end of the file'}")
                self._use(self._at + 1)
                sign = self.next_sign()
            elif sign == "]":
                raise UserError(f"{self._path}: the file holds no rows")
            number += 1
            where = f"{self._path}, row {number} (line {self._line})"
            if sign != "{":
                got = sign or "the end of the file"
                raise UserError(f"{where}: expected a JSON object, got {got}")
            self._budget.spend_row(where)
            yield where, self._object(where)

    def _object(self, where: str) -> dict[str, Any]:
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if len(self._text) - self._at >= MAX_ROW_BYTES:
                    most = size(MAX_ROW_BYTES)
                    raise UserError(
                        f"{where}: longer than {most}, or broken: {error.msg}"
                    ) from None
                if self._more():
                    continue
                self._use(error.pos)
                raise self._broken(error.msg) from None
            except RecursionError:
                raise UserError(f"{where}: JSON that is nested too deeply") from None
            except ValueError as error:  # Python reads no number of more than 4,300 digits
                raise UserError(f"{where}: not valid JSON: {error}") from None
            self._use(end)
            found: dict[str, Any] = value
            return found

    def _use(self, end: int) -> None:
        self._line += self._text.count("\n", self._at, end)
        self._at = end

    def _more(self) -> bool:
        if self._ended:
            return False
        data = self._file.read(CHUNK)
        self._budget.spend_bytes(f"{self._path}, line {self._line}", len(data))
        self._ended = not data
        try:
            self._text = self._text[self._at :] + self._decode(data, final=not data)
        except UnicodeDecodeError as error:
            bad = error.object[error.start]
            raise self._broken(f"not UTF-8 text (byte {bad:#04x})") from None
        self._at = 0
        return True

    def _broken(self, what: str) -> UserError:
        return UserError(f"{self._path}, line {self._line}: not valid JSON: {what}")
