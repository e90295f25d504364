"""A trial's generations as an Arrow table and as Parquet bytes: one row per request.

| column | type | meaning |
|---|---|---|
| `request_id` | string | unique within the trial |
| `scheduled_ns`, `submitted_ns`, `client_lag_ns` | int64 | monotonic clock |
| `commit_ns` | list of int64 | one stamp per commit |
| `commit_tokens` | list of int32 | tokens of each commit |
| `stamp_lag_ns` | list of int64 | by how much each stamp can be late; empty: none can |
| `token_ids` | list of int32 | every output token |
| `token_layers` | list of int32 | layers that each ran, 0: not told; may end earlier. Optional |
| `finished` | string or null | stop, length, error; null when the trial ended first |
| `error` | string or null | |
| `telemetry` | string or null | JSON object of counts |
| `text` | string or null | decoded answer |
| `label`, `confidence` | string, float64 or null | answers that are labels. Optional |
| `decided.NAME` | list | recorded decisions (`harness.core.nouns.Decisions`). Optional |
| `score.NAME` | float64 or null | one column per task score |
| `count.NAME` | float64 or null | one column per telemetry count whose name has no `@` |
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.core.decisions import Decisions
from harness.core.nouns import Generation, Label, TrialRecord
from results.metrics.arrays import COUNT_PREFIX, DECIDED_PREFIX, SCORE_PREFIX
from results.store.records import BrokenRecordError, remedy

COLUMNS = {
    "request_id": pa.string(),
    "scheduled_ns": pa.int64(),
    "submitted_ns": pa.int64(),
    "client_lag_ns": pa.int64(),
    "commit_ns": pa.list_(pa.int64()),
    "commit_tokens": pa.list_(pa.int32()),
    "stamp_lag_ns": pa.list_(pa.int64()),
    "token_ids": pa.list_(pa.int32()),
    "finished": pa.string(),
    "error": pa.string(),
    "telemetry": pa.string(),
    "text": pa.string(),
}
LABELS = {"label": pa.string(), "confidence": pa.float64()}
"""Columns of a trial whose answers are labels."""
DECIDED = {
    "positions": np.int32,
    "confidence": np.float32,
    "agrees": np.int8,
    "drafted": np.int32,
    "accepted": np.int32,
    "batch": np.int32,
    "asked": np.int32,
    "offered": np.int32,
}
"""Lists of `Decisions`, columns of a trial whose backend recorded them. Files of earlier versions
lack some, which are empty then."""
LAYERS = {"token_layers": pa.list_(pa.int32())}
"""A column of a trial whose backend leaves early, token by token."""


class TrialFile:
    """A trial's Parquet file, whole in memory, decoded column by column.

    Raises `BrokenRecordError`, which names `path`, when made and when read.
    """

    def __init__(self, path: Path, data: bytes) -> None:
        self._path = path
        with self._broken():
            self._file = pq.ParquetFile(pa.BufferReader(data))
            self.names: list[str] = self._file.schema_arrow.names
        if missing := [name for name in COLUMNS if name not in self.names]:
            raise BrokenRecordError(f"{path}: no column '{missing[0]}'; {remedy(path)}")

    def read(self, names: Sequence[str]) -> pa.Table:
        """These columns, in the file's order."""
        with self._broken():
            return self._file.read(names, use_threads=False)

    def nulls(self, name: str) -> int | None:
        """How many entries of a plain column are null, decoding nothing; None: not known."""
        found = self._file.metadata
        place = found.schema.names.index(name)
        groups = [found.row_group(i).column(place) for i in range(found.num_row_groups)]
        if not all(g.statistics and g.statistics.has_null_count for g in groups):
            return None
        return sum(int(group.statistics.null_count) for group in groups)

    @contextlib.contextmanager
    def _broken(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            told = f"{self._path}: broken Parquet ({reason}); {remedy(self._path)}"
            raise BrokenRecordError(told) from None


def to_table(record: TrialRecord) -> pa.Table:
    """The generations, texts and scores of a record. Raises `ValueError` when an id is repeated,
    or when a text or score belongs to no generation (it would be lost)."""
    generations = record.generations
    ids = [g.request_id for g in generations]
    known = set(ids)
    if len(known) != len(ids):
        raise ValueError(f"trial {record.key}: request ids are not unique")
    if strange := (record.texts.keys() | record.scores.keys()) - known:
        raise ValueError(f"trial {record.key}: text or score of unknown request {min(strange)!r}")
    data: dict[str, Any] = {
        "request_id": ids,
        "scheduled_ns": [g.scheduled_ns for g in generations],
        "submitted_ns": [g.submitted_ns for g in generations],
        "client_lag_ns": [g.client_lag_ns for g in generations],
        "commit_ns": _lists([g.commit_ns for g in generations], np.int64),
        "commit_tokens": _lists([g.commit_tokens for g in generations], np.int32),
        "stamp_lag_ns": _lists([g.stamp_lag_ns for g in generations], np.int64),
        "token_ids": _lists([g.token_ids for g in generations], np.int32),
        "finished": [g.finished for g in generations],
        "error": [_unicode(g.error) for g in generations],
        "telemetry": [_telemetry_text(g.telemetry) for g in generations],
        "text": [_unicode(record.texts.get(i)) for i in ids],
    }
    columns = COLUMNS
    if any(g.label is not None for g in generations):
        columns = {**COLUMNS, **LABELS}
        data["label"] = [_unicode(g.label.name) if g.label else None for g in generations]
        data["confidence"] = [g.label.confidence if g.label else None for g in generations]
    if any(g.token_layers for g in generations):
        columns = {**columns, **LAYERS}
        data["token_layers"] = _lists([g.token_layers for g in generations], np.int32)
    arrays = {name: pa.array(data[name], kind) for name, kind in columns.items()}
    if any(g.decisions is not None for g in generations):
        decided = [g.decisions or Decisions() for g in generations]
        for name, kind in DECIDED.items():
            arrays[DECIDED_PREFIX + name] = _lists([getattr(d, name) for d in decided], kind)
    scores = [record.scores.get(i, {}) for i in ids]
    # counts stand in the JSON text too; as columns they add up without a parse per request
    counts = [{k: v for k, v in g.telemetry.items() if "@" not in k} for g in generations]
    return pa.table(arrays | _numbers(SCORE_PREFIX, scores) | _numbers(COUNT_PREFIX, counts))


def to_parquet(table: pa.Table) -> bytes:
    """Parquet bytes, encoded for small size at memory speed: stamps as differences, then zstd."""
    sink = pa.BufferOutputStream()
    plain = ("commit_ns.list.element", "token_ids.list.element", "request_id", "text")
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in _leaf_names(table) if name not in plain],
        column_encoding={"commit_ns.list.element": "DELTA_BINARY_PACKED"},
    )
    result: bytes = sink.getvalue().to_pybytes()
    return result


def from_table(
    table: pa.Table,
) -> tuple[list[Generation], dict[str, str], dict[str, dict[str, float]]]:
    """The inverse of `to_table`: generations, texts by id, scores by id."""
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    ids: list[str] = columns["request_id"]
    generations = [
        Generation(
            request_id=request_id,
            scheduled_ns=columns["scheduled_ns"][i],
            submitted_ns=columns["submitted_ns"][i],
            client_lag_ns=columns["client_lag_ns"][i],
            commit_ns=columns["commit_ns"][i],
            commit_tokens=columns["commit_tokens"][i],
            token_ids=columns["token_ids"][i],
            token_layers=columns["token_layers"][i] if "token_layers" in columns else [],
            stamp_lag_ns=columns["stamp_lag_ns"][i],
            finished=columns["finished"][i],
            error=columns["error"][i],
            telemetry=json.loads(columns["telemetry"][i] or "{}"),
            label=_label(columns, i),
            decisions=_decisions(columns, i),
        )
        for i, request_id in enumerate(ids)
    ]
    texts = {i: text for i, text in zip(ids, columns["text"], strict=True) if text is not None}
    scores: dict[str, dict[str, float]] = {}
    for name in table.column_names:
        if name.startswith(SCORE_PREFIX):
            for request_id, value in zip(ids, columns[name], strict=True):
                if value is not None:
                    scores.setdefault(request_id, {})[name.removeprefix(SCORE_PREFIX)] = value
    return generations, texts, scores


def _label(columns: Mapping[str, Sequence[Any]], row: int) -> Label | None:
    if "label" not in columns or columns["label"][row] is None:
        return None
    return Label(columns["label"][row], columns["confidence"][row])


def _decisions(columns: Mapping[str, Sequence[Any]], row: int) -> Decisions | None:
    if DECIDED_PREFIX + "positions" not in columns:
        return None
    there = [name for name in DECIDED if DECIDED_PREFIX + name in columns]
    found = Decisions(**{name: columns[DECIDED_PREFIX + name][row] for name in there})
    return None if found == Decisions() else found


def _lists(lists: Sequence[Sequence[float]], dtype: Any) -> pa.ListArray:
    # pa.array on nested lists costs ten times as much as flattening first
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum([len(x) for x in lists], out=offsets[1:])
    values = np.fromiter(itertools.chain.from_iterable(lists), dtype, int(offsets[-1]))
    return pa.ListArray.from_arrays(offsets, values)


def _numbers(prefix: str, rows: Sequence[Mapping[str, float]]) -> dict[str, pa.Array]:
    names = sorted({name for row in rows for name in row})
    return {prefix + n: pa.array([row.get(n) for row in rows], pa.float64()) for n in names}


def _telemetry_text(telemetry: Mapping[str, float]) -> str | None:
    return json.dumps(telemetry, sort_keys=True, separators=(",", ":")) if telemetry else None


def _unicode(text: str | None) -> str | None:
    # a server may answer with half a surrogate pair (JSON allows it), which UTF-8 cannot hold
    return text.encode("utf-8", "replace").decode() if text is not None else None


def _leaf_names(table: pa.Table) -> list[str]:
    return [
        f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
        for field in table.schema
    ]
