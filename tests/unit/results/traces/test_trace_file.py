"""Traces on the disk: what goes in comes out, and one line for what is none."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.core.errors import UserError
from results.traces.file import LISTS, METADATA, read_trace, write_trace
from tests.support.results.made_traces import made_row, made_trace

Change = Callable[[dict[str, Any]], Any]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    trace = made_trace()
    write_trace(tmp_path / "t", trace)
    found = read_trace(tmp_path / "t")
    for name in ("method", "depth", "exits", "thresholds", "settings", "model", "checksum"):
        assert getattr(found, name) == getattr(trace, name), name
    assert found.workloads == ("gsm8k",)
    for mine, theirs in zip(found.rows, trace.rows, strict=True):
        for field in dataclasses.fields(mine):
            one, other = getattr(mine, field.name), getattr(theirs, field.name)
            if field.name in LISTS:
                np.testing.assert_array_equal(one, other)
                assert one.dtype == other.dtype
            else:
                assert one == other, field.name


def test_a_missing_file_and_foreign_ones_are_refused(tmp_path: Path) -> None:
    plain, text = tmp_path / "other.parquet", tmp_path / "text"
    pq.write_table(pa.table({"a": [1]}), plain)
    text.write_text("name: demo")
    broken = tmp_path / "broken"
    write_trace(broken, made_trace())
    broken.write_bytes(broken.read_bytes()[:900])
    for path, words in (
        (tmp_path / "none", "no such trace: no such file or directory"),
        (tmp_path, "expected a plain file, found a folder"),
        (plain, "not a trace: no 'decodebench.trace' in it; 'decodebench trace' makes one"),
        (text, "not a trace: no Parquet file"),
        (broken, "broken Parquet ("),
    ):
        with pytest.raises(UserError) as caught:
            read_trace(path)
        assert str(caught.value).startswith(f"{path}: {words}"), str(caught.value)
        assert "\n" not in str(caught.value)


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = rewritten(tmp_path, about=lambda told: told.update(schema_version=2))
    with pytest.raises(UserError, match="schema version 2 of traces, expected 1; record it anew"):
        read_trace(path)


@pytest.mark.parametrize(
    ("words", "about", "columns"),
    [
        ("no 'method'", lambda a: a.pop("method"), None),
        ("exits \\[6, 2\\]", lambda a: a.update(exits=[6, 2]), None),
        ("lie outside 4 layers", lambda a: a.update(depth=4), None),
        ("no whole numbers", lambda a: a.update(exits=[2, 6.5]), None),
        ("with thresholds \\[0.5\\]", lambda a: a.update(thresholds=[0.5]), None),
        ("not 2 numbers for each", None, lambda c: c.update(confidence=[[0.5]] * 2)),
        ("a confidence above 1", None, lambda c: c.update(confidence=[[1.5] * 10] * 2)),
        ("not 1, 0 or -1", None, lambda c: c.update(agrees=[[3] * 10] * 2)),
        ("outside its 5 tokens", None, lambda c: c.update(positions=[[4] * 5] * 2)),
        ("outside its 5 tokens", None, lambda c: c.update(positions=[[-1] * 5] * 2)),
        ("passes of different lengths", None, lambda c: c.update(drafted=[[1]] * 2)),
        ("are no numbers", lambda a: a.update(thresholds=[0.5, float("nan")]), None),
        ("more than 1,000,000", None, lambda c: c.update(answer_tokens=[2**31 - 1, 9])),
        ("has 0 tokens", None, lambda c: c.update(answer_tokens=[0, 9])),
        ("ended with 'error'", None, lambda c: c.update(finished=["error"] * 2)),
        ("a request stands twice", None, lambda c: c.update(request_id=["a", "a"])),
        ("damaged trace", None, lambda c: c.pop("batch")),
    ],
)
def test_what_no_recording_writes_is_refused(
    words: str, about: Change | None, columns: Change | None, tmp_path: Path
) -> None:
    path = rewritten(tmp_path, about, columns)
    with pytest.raises(UserError, match=words) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: damaged trace: ")


def test_a_description_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = rewritten(tmp_path)
    table = pq.read_table(path).replace_schema_metadata({METADATA: b"[" * 100_000})
    pq.write_table(table, path)
    with pytest.raises(UserError, match="damaged trace: maximum recursion depth"):
        read_trace(path)


def test_a_trace_without_a_request_is_refused(tmp_path: Path) -> None:
    write_trace(tmp_path / "t", made_trace(rows=()))
    with pytest.raises(UserError, match="it holds no request"):
        read_trace(tmp_path / "t")


def test_a_request_finds_its_row_or_always_the_same_other() -> None:
    trace = made_trace(rows=tuple(made_row(f"gsm8k-{i}") for i in range(5)))
    assert trace.row_for("gsm8k-3", 9, ignore_eos=False).request_id == "gsm8k-3"
    others = {f"x-{i}": trace.row_for(f"x-{i}", 9, ignore_eos=False) for i in range(64)}
    again = made_trace(rows=trace.rows)
    assert all(again.row_for(i, 9, ignore_eos=False) is row for i, row in others.items())
    assert len({row.request_id for row in others.values()}) == 5


def test_who_was_not_recorded_replays_its_own_workload() -> None:
    names = ("chat", "chat-long", "code")
    rows = [made_row(f"{name}-{i}", workload=name) for name in names for i in range(5)]
    trace = made_trace(rows=tuple(rows))
    for name in names:
        others = [trace.row_for(f"{name}-test-{i}", 9, ignore_eos=False) for i in range(64)]
        assert {row.workload for row in others} == {name}
        assert len({row.request_id for row in others}) == 5


def test_a_prompt_that_is_asked_again_replays_the_same_row() -> None:
    trace = made_trace(rows=tuple(made_row(f"gsm8k-{i}") for i in range(5)))
    assert trace.row_for("gsm8k-3#2", 9, ignore_eos=False).request_id == "gsm8k-3"


@pytest.mark.parametrize(
    ("finished", "most", "ignores", "end"),
    [
        ("stop", 9, False, 5),
        ("stop", 5, False, 5),
        ("length", 9, False, 5),
        ("length", 5, False, None),
        ("stop", 4, False, None),
        ("stop", 9, True, None),
    ],
)
def test_answers_end_where_the_trace_ends(
    finished: str, most: int, ignores: bool, end: int | None
) -> None:
    assert made_row(finished=finished).end(most, ignore_eos=ignores) == end


def rewritten(folder: Path, about: Change | None = None, columns: Change | None = None) -> Path:
    path = folder / "t"
    write_trace(path, made_trace())
    table = pq.read_table(path)
    told = json.loads(table.schema.metadata[METADATA])
    data = table.to_pydict()
    for change, content in ((about, told), (columns, data)):
        if change is not None:
            change(content)
    changed = pa.table(data).replace_schema_metadata({METADATA: json.dumps(told)})
    pq.write_table(changed, path)
    return path
