from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from harness.core.errors import UserError
from workloads.readers import read_records

RECORDS = [
    {"question": "How many\nare left, if any?", "answer": 'She says "5".\n#### 5'},
    {"question": "Wie viele Äpfel? 苹果 🍎", "answer": "#### 1,000"},
]


def _json_lines(path: Path) -> None:
    path.write_text("\n\n".join(json.dumps(r) for r in RECORDS), encoding="utf-8")


def _json_array(path: Path) -> None:
    path.write_text(json.dumps(RECORDS, indent=2, ensure_ascii=False), encoding="utf-8")


def _marked_array(path: Path) -> None:
    path.write_text(json.dumps(RECORDS), encoding="utf-8-sig")


def _csv_file(path: Path) -> None:
    import csv

    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, ["question", "answer"])
        writer.writeheader()
        writer.writerows(RECORDS)


def _parquet_file(path: Path) -> None:
    parquet.write_table(pa.Table.from_pylist(RECORDS), path)


def _gzipped(write: Callable[[Path], None]) -> Callable[[Path], None]:
    def write_gzipped(path: Path) -> None:
        plain = path.with_name("plain")
        write(plain)
        path.write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()

    return write_gzipped


GOOD = {
    "a.jsonl": _json_lines,
    "a.json": _json_array,
    "marked.json": _marked_array,
    "lines.json": _json_lines,
    "a.csv": _csv_file,
    "a.parquet": _parquet_file,
    "a.jsonl.gz": _gzipped(_json_lines),
    "a.json.gz": _gzipped(_json_array),
    "a.csv.gz": _gzipped(_csv_file),
    "A.JSONL": _json_lines,
}


@pytest.mark.parametrize("name", GOOD)
def test_every_kind_of_file_gives_the_same_records(tmp_path: Path, name: str) -> None:
    GOOD[name](tmp_path / name)
    assert [record for _, record in read_records(tmp_path / name)] == RECORDS


ROW = b'{"question": "q", "answer": "a"}\n'
BAD = {
    "unknown kind": ("a.txt", ROW, "unknown kind of file; expected one of: .jsonl"),
    "bad JSON line": (
        "a.jsonl",
        ROW + b'{"question" 1}\n',
        "line 2: not valid JSON: Expecting ':'",
    ),
    "cut JSON line": ("a.jsonl", ROW * 2 + ROW[:9], "line 3: not valid JSON"),
    "not an object": ("a.jsonl", b"[1, 2]\n", "line 1: expected a JSON object, got list"),
    "not UTF-8": ("a.jsonl", ROW + b'{"question": "\xe9"}\n', "line 2: not UTF-8 text (byte 0xe9"),
    "deep JSON": ("a.jsonl", b"[" * 100_000, "line 1: "),
    "endless number": (
        "a.jsonl",
        b'{"a": ' + b"1" * 5000 + b"}",
        "line 1: not valid JSON: Exceeds",
    ),
    "empty": ("a.jsonl", b"", "holds no rows"),
    "blank": ("a.jsonl", b"\n \n", "holds no rows"),
    "empty array": ("a.json", b"[]", "holds no rows"),
    "bad array": (
        "a.json",
        b'[{"a": 1},\n{"a" 2}]',
        "not valid JSON: Expecting ':' delimiter (its ",
    ),
    "number in array": ("a.json", b'[{"a": 1}, 7]', "row 2: expected a JSON object, got int"),
    "header only": ("a.csv", b"question,answer\n", "holds no rows"),
    "header of an open quote": ("a.csv", b'"question,answer\n1,2\n', "line 1: not valid CSV"),
    "surplus value": ("a.csv", b"question,answer\n1,2\n1,2,3\n", "line 3: more values than the 2"),
    "open quote": ("a.csv", b'question,answer\n1,"2\n', "line 2: not valid CSV"),
    "CSV not UTF-8": ("a.csv", b"question,answer\n1,2\n1,\xff\n", "line 3: not UTF-8"),
    "not gzip": ("a.jsonl.gz", ROW, "broken gzip file"),
    "cut gzip": ("a.jsonl.gz", gzip.compress(ROW * 9)[:-9], "broken gzip file"),
    "damaged gzip": (
        "a.csv.gz",
        gzip.compress(b"a,b\n" * 99)[:14] + b"\0" * 40,
        "broken gzip file",
    ),
    "not Parquet": ("a.parquet", b"PAR1" + b"\0" * 50, "broken Parquet file"),
    "empty Parquet": ("a.parquet", b"", "broken Parquet file"),
}


@pytest.mark.parametrize(("name", "content", "message"), BAD.values(), ids=BAD.keys())
def test_bad_file_is_one_line_that_names_it(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as raised:
        list(read_records(path))
    text = str(raised.value)
    assert text.startswith(str(path))
    assert message in text
    assert "\n" not in text


def test_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        list(read_records(tmp_path / "a.jsonl"))


def test_cut_parquet_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    _parquet_file(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="broken Parquet file"):
        list(read_records(path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary(max_size=60), name=st.sampled_from(sorted(GOOD)))
def test_any_bytes_give_records_or_one_line(tmp_path: Path, content: bytes, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    try:
        list(read_records(path))
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017
