"""A reduced run in one Parquet file, small enough to be kept beside the code: a file of record.

One row per request of each trial that ended well (`trial`, `request_id`, `answer`, its length in
`tokens`, which older ones lack, and a column `value.NAME` for each quantity); all else stands as
JSON in the file's metadata.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.core import files
from harness.core.errors import UserError
from harness.core.nouns import Status
from results.compare.gate.reduced import CellName, ReducedRun, ReducedTrial

VERSION = 2
"""Of what is written. 1 had no `exact`, `commit` and `started`, and can be read."""
_KEY = b"decodebench.record"
_VALUE = "value."
_IN_COLUMNS = ("ids", "answers", "values", "lengths")
_LENGTHS = "tokens"
AGAIN = "write it anew with 'compare --record'"
_TOLD: Mapping[str, Any] = {
    **dict.fromkeys(("lossless", "greedy", "replayed", "exact"), bool),
    **dict.fromkeys(
        ("broken_promise", "fingerprint", "invocation", "commit", "started"), str | None
    ),
    **dict.fromkeys(("identity", "numbers", "cell"), dict),
    "repeat": int,
    "status": str,
    "doubt": str,
}
"""What each field has to be: anybody may have written the file."""


def write_record(path: Path, run: ReducedRun) -> None:
    """Write the run whole or not at all. Raises `OSError`."""
    trials = [_described(trial) for trial in run.trials]
    counts = [len(trial.ids) for trial in run.trials]
    names = sorted({name for trial in run.trials for name in trial.values})
    columns: dict[str, Any] = {
        "trial": pa.array(np.repeat(np.arange(len(counts), dtype=np.int32), counts)),
        "request_id": pa.array([i for t in run.trials for i in t.ids], pa.string()),
        "answer": pa.array(np.concatenate([t.answers for t in run.trials])),
    }
    lengths = [trial.lengths for trial in run.trials if len(trial.ids)]
    told = [one for one in lengths if one is not None]
    if told and len(told) == len(lengths):
        columns[_LENGTHS] = pa.array(np.concatenate(told))
    for name in names:
        parts = [t.values.get(name, np.full(len(t.ids), np.nan)) for t in run.trials]
        columns[_VALUE + name] = pa.array(np.concatenate(parts))
    said = json.dumps({"version": VERSION, "trials": trials}, sort_keys=True)
    table = pa.table(columns).replace_schema_metadata({_KEY: said.encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def read_record(path: Path) -> ReducedRun:
    """The run of a file of record. Raises `UserError` when it is missing, and as `parse_record`."""
    try:
        files.check_plain(path)
        return parse_record(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file or folder; expected a run or a record") from None
    except OSError as error:
        raise UserError(f"{path}: not a file of record ({error}); {AGAIN}") from None


def parse_record(data: bytes, where: str) -> ReducedRun:
    """The run of a file of record's bytes, which are `where`. Raises `UserError` when they are
    broken, of another version or no such file."""
    try:
        table = pq.read_table(pa.BufferReader(data), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{where}: not a file of record ({reason}); {AGAIN}") from None
    said = (table.schema.metadata or {}).get(_KEY)
    if said is None:
        raise UserError(f"{where}: not a file of record (a Parquet file of something else)")
    try:
        content = json.loads(said)
        if (version := content["version"]) not in (1, VERSION):
            raise UserError(f"{where}: a record of version {version}, expected {VERSION}; {AGAIN}")
        return ReducedRun(where, list(_trials(content["trials"], table)))
    except (LookupError, TypeError, ValueError, RecursionError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{where}: a damaged record ({reason}); {AGAIN}") from None


def _described(trial: ReducedTrial) -> dict[str, Any]:
    found = {f.name: getattr(trial, f.name) for f in dataclasses.fields(trial)}
    found["cell"] = dataclasses.asdict(trial.cell)
    return {name: value for name, value in found.items() if name not in _IN_COLUMNS}


def _trials(described: list[dict[str, Any]], table: pa.Table) -> Iterator[ReducedTrial]:
    columns = {name: table.column(name) for name in table.column_names}
    places, ids = columns["trial"].to_numpy(), columns["request_id"].to_pylist()
    answers = columns["answer"].to_numpy()
    if not (places.dtype.kind == answers.dtype.kind == "i" and (np.diff(places) >= 0).all()):
        raise ValueError("rows of no trial, or without an answer")
    lengths = columns[_LENGTHS].to_numpy() if _LENGTHS in columns else None
    if lengths is not None and lengths.dtype.kind != "i":
        raise ValueError("an answer without a length")
    if not all(isinstance(name, str) for name in ids):
        raise ValueError("a request without an id")
    starts = np.searchsorted(places, np.arange(len(described) + 1))
    values: Mapping[str, Any] = {
        name.removeprefix(_VALUE): column.to_numpy()
        for name, column in columns.items()
        if name.startswith(_VALUE)
    }
    if any(np.isinf(column).any() for column in values.values()):
        raise ValueError("an infinite value")
    for place, one in enumerate(described):
        rows = slice(starts[place], starts[place + 1])
        own = {name: column[rows] for name, column in values.items()}
        yield ReducedTrial(
            **{**one, "cell": _checked(one)},
            ids=ids[rows],
            answers=answers[rows],
            lengths=lengths[rows] if lengths is not None else None,
            values={name: found for name, found in own.items() if not np.isnan(found).all()},
        )


def _checked(described: Mapping[str, Any]) -> CellName:
    """The cell of a trial. Raises `ValueError` where something told of it is not what it has to
    be."""
    for name, value in described.items():
        if not isinstance(value, _TOLD[name]):
            raise ValueError(f"{name} is {value!r}")
    if described["status"] not in get_args(Status):
        raise ValueError(f"status is {described['status']!r}")
    for name, value in described["numbers"].items():
        if not isinstance(value, (int, float)) or math.isinf(value):
            raise ValueError(f"{name} is {value!r}")
    cell = CellName(**described["cell"])
    if not all(isinstance(part, str) for part in dataclasses.astuple(cell)):
        raise ValueError(f"cell is {described['cell']!r}")
    if not isinstance(json.loads(cell.options), dict):
        raise ValueError(f"options are {cell.options}")
    return cell
