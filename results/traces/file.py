"""Traces as Parquet files: a row for each request, and what was recorded in the file's metadata.

| column | type | meaning |
|---|---|---|
| `workload`, `request_id` | string | |
| `prompt_tokens`, `answer_tokens` | int32 | lengths; the prompt's is -1 where not known |
| `finished` | string | stop or length |
| `positions` | list of int32 | of each attempt; 0 is the first token after the prompt's own |
| `confidence` | list of float32 | attempts x exits, NaN where an exit was not asked |
| `agrees` | list of int8 | likewise: 1, 0, or -1 where nobody knows |
| `drafted`, `accepted`, `batch` | list of int32 | of each full pass; -1 where not known |
| `asked` | list of int32 | likewise, of chains of drafts; else empty. Older files do not have it |
| `offered` | list of int32 | likewise, of trees of guesses |
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import UserError
from harness.core.files import MIB, open_plain, size, write_atomic
from results.traces.recorded import DecisionTrace, TraceRow

SCHEMA_VERSION = 1
METADATA = b"decodebench.trace"
MAGIC = b"PAR1"
MAX_BYTES = 1024 * MIB
AGAIN = "'decodebench trace' makes one"
LISTS = {
    "positions": np.int32,
    "confidence": np.float32,
    "agrees": np.int8,
    "drafted": np.int32,
    "accepted": np.int32,
    "batch": np.int32,
    "asked": np.int32,
    "offered": np.int32,
}
LATER = ("asked", "offered")
"""Lists that older files lack."""
MOST_LAYERS = 10_000
MOST_TOKENS = 1_000_000
"""Of an answer: a replay keeps something for each of its positions."""
MOST_CONFIDENT = 1.001
"""Probabilities and cosines, rounded."""


def write_trace(path: Path, trace: DecisionTrace) -> None:
    """Write a trace, whole or not at all. Raises `OSError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = trace.rows
    about = {
        "schema_version": SCHEMA_VERSION,
        "method": trace.method,
        "depth": trace.depth,
        "exits": list(trace.exits),
        "thresholds": list(trace.thresholds),
        "settings": dict(trace.settings),
        "model": trace.model,
        "checksum": trace.checksum,
        "workloads": list(trace.workloads),
    }
    columns: dict[str, Any] = {
        "workload": [row.workload for row in rows],
        "request_id": [row.request_id for row in rows],
        "prompt_tokens": pa.array([row.prompt_tokens for row in rows], pa.int32()),
        "answer_tokens": pa.array([row.answer_tokens for row in rows], pa.int32()),
        "finished": [row.finished for row in rows],
    }
    for name, kind in LISTS.items():
        values = [getattr(row, name).ravel() for row in rows]
        columns[name] = pa.array(values, pa.list_(pa.from_numpy_dtype(kind)))
    table = pa.table(columns).replace_schema_metadata({METADATA: json.dumps(about)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=19)
    write_atomic(path, sink.getvalue().to_pybytes())


def read_trace(path: Path) -> DecisionTrace:
    """Read a trace. Raises `UserError` for a file that is missing, broken or no trace, for another
    version of the schema, and for numbers that no recording writes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = _content(path)
    if content[:4] != MAGIC:
        raise UserError(f"{path}: not a trace: no Parquet file; {AGAIN}")
    try:
        table = pq.read_table(pa.BufferReader(content), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: broken Parquet ({str(error).splitlines()[0]})") from None
    metadata = (table.schema.metadata or {}).get(METADATA)
    if metadata is None:
        raise UserError(f"{path}: not a trace: no '{METADATA.decode()}' in it; {AGAIN}")
    with _strange(path):
        about = json.loads(metadata)
        if (version := about["schema_version"]) != SCHEMA_VERSION:
            raise UserError(
                f"{path}: schema version {version} of traces, expected {SCHEMA_VERSION}; record it "
                "anew with this decodebench"
            )
        return _parse(table, about)


def _content(path: Path) -> bytes:
    try:
        with open_plain(path) as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"{path}: no such trace: {reason}") from None
    if len(content) > MAX_BYTES:
        raise UserError(f"{path}: larger than {size(MAX_BYTES)}, more than is read of a trace")
    return content


@contextmanager
def _strange(path: Path) -> Iterator[None]:
    try:
        yield
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        what = f"no '{error.args[0]}'" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{path}: damaged trace: {what}; record it anew") from None


def _parse(table: Any, about: Mapping[str, Any]) -> DecisionTrace:
    """Raises `KeyError`, `TypeError` or `ValueError` for what no recording writes."""
    exits, depth = tuple(about["exits"]), about["depth"]
    thresholds = tuple(float(x) for x in about["thresholds"])
    if not all(type(x) is int for x in (*exits, *(() if depth is None else (depth,)))):
        raise ValueError(f"exits {list(exits)} of {depth} layers are no whole numbers")
    if depth is not None and not 1 <= depth <= MOST_LAYERS:
        raise ValueError(f"a model of {depth} layers")
    if exits and (depth is None or not 0 < exits[0] <= exits[-1] < depth):
        raise ValueError(f"exits {list(exits)} lie outside {depth} layers")
    if list(exits) != sorted(set(exits)) or len(thresholds) != len(exits):
        raise ValueError(f"exits {list(exits)} with thresholds {list(thresholds)}")
    if any(math.isnan(x) for x in thresholds):
        raise ValueError(f"thresholds {list(thresholds)} are no numbers")
    names = ["workload", "request_id", "prompt_tokens", "answer_tokens", "finished", *LISTS]
    lacking = {name for name in LATER if name not in table.column_names}
    data = {name: table.column(name).to_pylist() for name in names if name not in lacking}
    data |= {name: [()] * len(table) for name in lacking}
    rows = tuple(_row(data, place, len(exits)) for place in range(len(table)))
    if not rows:
        raise ValueError("it holds no request")
    if len({row.request_id for row in rows}) < len(rows):
        raise ValueError("a request stands twice")
    _check_alike(rows)
    return DecisionTrace(
        method=str(about["method"]),
        depth=depth,
        exits=exits,
        thresholds=thresholds,
        settings=dict(about["settings"]),
        model=str(about["model"]),
        checksum=about["checksum"],
        rows=rows,
    )


def _row(data: Mapping[str, Sequence[Any]], place: int, exits: int) -> TraceRow:
    name, tokens = data["request_id"][place], data["answer_tokens"][place]
    finished = data["finished"][place]
    found = {key: np.array(data[key][place], kind) for key, kind in LISTS.items()}
    positions, confidence = found["positions"], found["confidence"]
    if finished not in ("stop", "length") or tokens < 1:
        raise ValueError(f"request {name} has {tokens} tokens and ended with {finished!r}")
    if tokens > MOST_TOKENS:
        raise ValueError(f"request {name} has {tokens} tokens, more than {MOST_TOKENS:,}")
    if len(confidence) != len(positions) * exits or len(found["agrees"]) != len(confidence):
        raise ValueError(f"request {name} has not {exits} numbers for each of its attempts")
    beyond = positions >= max(tokens - 1, 1)  # drafts after a wrong one, which nobody can judge
    known = (found["agrees"].reshape(len(positions), exits) >= 0).any(1)
    if (positions < 0).any() or (positions > MOST_TOKENS).any() or (beyond & known).any():
        raise ValueError(f"request {name} has an attempt outside its {tokens} tokens")
    if (np.abs(confidence[~np.isnan(confidence)]) > MOST_CONFIDENT).any():
        raise ValueError(f"request {name} has a confidence above 1")
    if not np.isin(found["agrees"], (-1, 0, 1)).all():
        raise ValueError(f"request {name} has an agreement that is not 1, 0 or -1")
    if not len(found["drafted"]) == len(found["accepted"]) == len(found["batch"]):
        raise ValueError(f"request {name} has passes of different lengths")
    _check_chains(str(name), tokens, found)
    shape = (len(positions), exits)
    found["confidence"], found["agrees"] = (
        found[key].reshape(shape) for key in ("confidence", "agrees")
    )
    workload, prompt = str(data["workload"][place]), int(data["prompt_tokens"][place])
    return TraceRow(workload, str(name), prompt, int(tokens), finished, **found)


def _check_chains(name: str, tokens: int, found: Mapping[str, Any]) -> None:
    """Raise `ValueError` for chains or trees of drafts that do not come to the answer."""
    drafted, accepted = found["drafted"], found["accepted"]
    told = [key for key in ("asked", "offered") if len(found[key])]
    if not told:
        return
    if len(told) > 1 or len(found[told[0]]) != len(drafted):
        raise ValueError(
            f"request {name} has {len(found[told[0]])} chains in {len(drafted)} passes"
        )
    more, fell = found[told[0]] - drafted, drafted - accepted
    possible = np.isin(more, (0, 1)) if told == ["asked"] else (more >= 0) & (fell <= 1)
    # whatever is offered, something of it lies on the way
    possible &= (drafted > 0) | (more <= 1 if told == ["asked"] else more == 0)
    if (accepted < 0).any() or (fell < 0).any() or not possible.all():
        raise ValueError(f"request {name} has a chain that no drafter makes")
    if int(accepted.sum()) + len(accepted) not in (tokens - 1, tokens):
        raise ValueError(f"request {name} has passes that do not come to its {tokens} tokens")


def _check_alike(rows: Sequence[TraceRow]) -> None:
    """Raise `ValueError` where some requests tell what was asked or offered in their passes, and
    another does not."""
    for key in LATER:
        lacking = [row for row in rows if len(getattr(row, key)) < len(row.drafted)]
        if lacking and any(len(getattr(row, key)) for row in rows):
            row = lacking[0]
            raise ValueError(
                f"request {row.request_id} has {len(row.drafted)} passes without '{key}', which "
                "others have"
            )
