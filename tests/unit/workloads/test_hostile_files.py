"""Data files that never end, or unpack to more than a machine holds: one line, and soon."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from harness.core.errors import UserError
from harness.core.nouns import Load, Workload
from workloads import readers
from workloads.arrivals import arrival_times
from workloads.datasets import load_rows
from workloads.files import folders
from workloads.files.folders import data_files
from workloads.readers import Budget, read_records

ROW = b'{"question": "q", "answer": "a"}\n'
MIB = 2**20


def refusal(path: Path, budget: Budget | None = None) -> str:
    with pytest.raises(UserError) as caught:
        list(read_records(path, budget))
    line = str(caught.value)
    assert line.startswith(str(path))
    assert "\n" not in line
    return line


ENDLESS: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "a named pipe"),
    "zero": (lambda path: path.symlink_to("/dev/zero"), "a device"),
    "folder": (Path.mkdir, "a folder"),
}


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet", ".jsonl.gz"])
@pytest.mark.parametrize("kind", ENDLESS)
def test_only_plain_files_are_read(tmp_path: Path, kind: str, suffix: str) -> None:
    make, found = ENDLESS[kind]
    path = tmp_path / f"data{suffix}"
    make(path)
    assert refusal(path).endswith(f"expected a plain file, found {found}")


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_source_and_a_trace_are_plain_files_too(tmp_path: Path, kind: str) -> None:
    make, found = ENDLESS[kind]
    path = tmp_path / "times.txt"
    make(path)
    with pytest.raises(UserError, match=f"expected a plain file, found {found}"):
        arrival_times(Load("trace", trace=str(path)), 2, 0)
    if kind != "folder":
        source = path.rename(tmp_path / "data.jsonl")
        with pytest.raises(UserError, match=f"expected a plain file, found {found}"):
            load_rows(Workload("gsm8k", str(source)), 0, 2)


@pytest.mark.parametrize(
    ("name", "content", "count", "message"),
    [
        ("a.jsonl.gz", bytes(MIB), 64, "a.jsonl.gz, line 1: longer than 4 MiB"),
        ("a.json.gz", b"[" + bytes(MIB), 64, "a.json.gz, line 1: longer than 4 MiB"),
        ("a.json.gz", b"[\n" * (MIB // 2), 65, "a JSON array of more than 64 MiB; use JSON lines"),
        ("a.csv.gz", b"a" * MIB, 64, "a.csv.gz, line 1: longer than 4 MiB"),
        ("a.csv.gz", b'"x\n\n' * 4 + b"," * MIB, 9, "not valid CSV"),
        ("a.jsonl.gz", b"\n" * MIB, 1, "line 100001: more than 100,000 blank lines in a row"),
        ("a.csv.gz", b"\n" * MIB, 1, "line 100001: more than 100,000 blank lines in a row"),
    ],
)
def test_a_small_file_that_unpacks_without_end(
    tmp_path: Path, name: str, content: bytes, count: int, message: str
) -> None:
    path = tmp_path / name
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(count):
            file.write(content)
    assert message in refusal(path)


def test_a_csv_row_ends_though_its_quote_does_not(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'a,b\n1,2\n3,"' + b"x" * 9 * MIB)
    assert "longer than 4 MiB" in refusal(path)
    path.write_bytes(b'a,b\n1,2\n3,"' + b"xyz\n" * (2 * MIB))
    assert "a row of more than 4 MiB" in refusal(path)


def test_many_rows_are_no_long_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n" + (b"x" * MIB + b",y\n") * 6)
    assert len(list(read_records(path))) == 6


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.jsonl.gz"])
def test_a_budget_of_bytes_is_kept_to_the_byte(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    content = ROW * 3 if "json" in name else b"question,answer\n" + b"q,a\n" * 3
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    exact = Budget(bytes=len(content))
    assert (len(list(read_records(path, exact))), exact.bytes) == (3, 0)
    line = refusal(path, Budget(bytes=len(content) - 1))
    assert "more bytes (unpacked) than are read; 'limits: {data_mib: N}' allows more" in line


def test_a_budget_of_rows_is_kept_to_the_row_over_all_files(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(ROW * 3)
    budget = Budget(rows=5)
    assert len(list(read_records(path, budget))) == 3
    assert "line 3: more rows than are read; 'limits: {data_rows: N}'" in refusal(path, budget)


def test_a_json_array_and_a_trace_spend_too(tmp_path: Path) -> None:
    array, trace = tmp_path / "a.json", tmp_path / "times.txt"
    array.write_text("[" + ", ".join([ROW.decode()] * 3) + "]")
    assert "more bytes (unpacked)" in refusal(array, Budget(bytes=90))
    trace.write_text("0\n1\n2\n")
    load = Load("trace", trace=str(trace))
    assert arrival_times(load, 3, 0, Budget(bytes=6, rows=3)) == [0, 1, 2]
    for budget in (Budget(bytes=5), Budget(rows=2)):
        with pytest.raises(UserError, match="'limits: "):
            arrival_times(load, 3, 0, budget)


def test_parquet_spends_what_it_says_it_unpacks_to(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"question": ["x" * MIB] * 8, "answer": ["y"] * 8})
    parquet.write_table(table, path, use_dictionary=False, compression="zstd")
    assert path.stat().st_size < MIB
    assert "more bytes (unpacked)" in refusal(path, Budget(bytes=6 * MIB))
    assert len(list(read_records(path, Budget(bytes=9 * MIB)))) == 8


def test_a_text_that_parquet_holds_once_is_not_written_out_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MAX_ROW_BYTES", 1000)
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"question": ["x" * 5000] * 64}), path)
    assert "row 1: rows of over 1,000 bytes" in refusal(path)


def test_a_folder_like_the_whole_disk_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MAX_ENTRIES", 5)
    for n in range(5):
        (tmp_path / f"{n}.txt").touch()
    (tmp_path / "0.txt").rename(tmp_path / "0.jsonl")
    assert data_files(tmp_path, "test") == [tmp_path / "0.jsonl"]
    (tmp_path / "more.txt").touch()
    with pytest.raises(UserError, match="more than 5 entries; name a data file"):
        data_files(tmp_path, "test")


def test_a_mix_of_endless_digits(tmp_path: Path) -> None:
    workload = Workload("gsm8k", options={"mix": "9" * 5000 + ":1"})
    with pytest.raises(UserError, match="expected easy:hard"):
        load_rows(workload, 0, 2)


def test_an_array_that_is_not_utf_8_says_where(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"a": "b"},\n {"a": "\xe9"}]')
    assert "a.json, line 2: not UTF-8 text (byte 0xe9 at position 9 of the line)" in refusal(path)
