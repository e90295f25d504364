"""One trial's requests as numpy columns, so that no metric loops over requests in Python.

Ragged columns are stored flat with a start index per request: the commits of request r are
``commit_ns[commit_start[r]:commit_start[r + 1]]``. Commits that carried no token (a server's last,
empty chunk) are left out: they are not output.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.core.nouns import UNKNOWN_TOKEN, TrialRecord

if TYPE_CHECKING:
    from results.store.columns import TrialFile

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
SCORE_PREFIX = "score."
COUNT_PREFIX = "count."
DECIDED_PREFIX = "decided."
ON_DEMAND = ("error", "telemetry", "text", "token_layers")


@dataclass(frozen=True, slots=True)
class RequestArrays:
    """R requests with C commits and T output tokens in all; times are int64 nanoseconds."""

    ids: list[str]
    scheduled_ns: Ints
    submitted_ns: Ints
    client_lag_ns: Ints
    finished: NDArray[np.object_]
    """(R,) "stop", "length", "error" or None."""
    completed: Flags
    """(R,) ended by "stop" or "length"; only these are ever samples."""
    sampled: Flags
    """(R,) requests that count as latency samples: completed, with a token or a label."""
    tokens: Ints
    """(R,) output tokens of each request, counted over its commits."""
    commit_start: Ints
    """(R + 1,)"""
    commit_ns: Ints
    """(C,)"""
    commit_tokens: Ints
    """(C,) at least 1, but 0 for a label"""
    stamp_lag_ns: Ints
    """By how much stamps can be late, (C,) or (0,) where none can; those of empty commits too."""
    token_start: Ints
    """(R + 1,)"""
    token_ids: NDArray[np.int32]
    """(T,)"""
    known: Flags
    """(R,) requests whose token ids are all known: a server may tell counts only."""
    labels: NDArray[np.object_] | None
    """(R,) the label that a request was answered with, or None; None where no trial's was."""
    scores: dict[str, Floats]
    """Task score name -> (R,), NaN where there is none."""
    counts: dict[str, Floats]
    """Telemetry count -> (R,), NaN where a request has none (margins are not among them)."""
    read: Callable[[str], Any]
    """Decodes one of `ON_DEMAND` as an Arrow column; None: the trial does not have it."""
    has_texts: bool
    """Whether each request is known to have a text; else `texts` says which."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def texts(self) -> Any:
        """Arrow column of R strings."""
        return self.read("text")

    @property
    def errors(self) -> Any:
        """Arrow column of R strings."""
        return self.read("error")

    @property
    def telemetry(self) -> Any:
        """Arrow column of R JSON objects."""
        return self.read("telemetry")

    @property
    def token_layers(self) -> Ints | None:
        """(T,) layers that each output token ran, 0: not told; None of a backend that never is."""
        column = self.read("token_layers")
        if column is None:
            return None
        start, told = _parts(column)
        found, lengths = np.zeros(len(self.token_ids), np.int64), np.diff(start)
        moved = np.repeat(self.token_start[:-1] - start[:-1], lengths)
        found[np.arange(len(told)) + moved] = told
        return found

    @property
    def failed(self) -> Flags:
        """(R,) ended by "error"."""
        return np.asarray(self.finished == "error", bool)

    def first_commit(self) -> Ints:
        """(K,) index of the first commit of each of the K sampled requests."""
        return self.commit_start[:-1][self.sampled]

    def last_commit(self) -> Ints:
        """(K,) index of the last commit of each of the K sampled requests."""
        return self.commit_start[1:][self.sampled] - 1

    def telemetry_of(self, row: int) -> dict[str, float]:
        """All that a backend told about one request."""
        found: dict[str, float] = json.loads(self.telemetry[row].as_py() or "{}")
        return found


def from_table(table: Any) -> RequestArrays:
    """Numpy columns of an Arrow table made by `results.store.columns.to_table`."""
    names = set(table.column_names)
    return _arrays(
        table,
        lambda name: table.column(name) if name in names else None,
        table.column("text").null_count == 0,
    )


def from_file(file: TrialFile) -> RequestArrays:
    """Numpy columns of a stored trial. Those of `ON_DEMAND` are large and seldom needed: they are
    decoded when they are asked for, which may raise `UserError`."""
    names = [name for name in file.names if name not in ON_DEMAND]
    table = file.read([name for name in names if not name.startswith(DECIDED_PREFIX)])
    read = functools.cache(
        lambda name: file.read([name]).column(name) if name in file.names else None
    )
    return _arrays(table, read, file.nulls("text") == 0)


def _arrays(table: Any, read: Callable[[str], Any], has_texts: bool) -> RequestArrays:
    commit_start, commit_ns = _ragged(table, "commit_ns")
    tokens_start, commit_tokens = _ragged(table, "commit_tokens")
    if not np.array_equal(commit_start, tokens_start):
        raise ValueError("commit_ns and commit_tokens differ in length")
    labels = None
    if "label" in table.column_names:
        labels = np.asarray(table.column("label").to_pylist(), object)
    if not commit_tokens.all():
        kept = commit_tokens > 0
        if labels is not None:
            kept |= np.repeat(labels != None, np.diff(commit_start))  # noqa: E711
        commit_start = np.concatenate(([0], np.cumsum(kept)))[commit_start]
        commit_ns, commit_tokens = commit_ns[kept], commit_tokens[kept]
    token_start, token_ids = _ragged(table, "token_ids", np.int32)
    tokens = np.diff(np.concatenate(([0], np.cumsum(commit_tokens)))[commit_start])
    finished = np.asarray(table.column("finished").to_pylist(), object)
    completed = np.asarray((finished == "stop") | (finished == "length"), bool)
    return RequestArrays(
        ids=table.column("request_id").to_pylist(),
        scheduled_ns=_numpy(table.column("scheduled_ns").combine_chunks()),
        submitted_ns=_numpy(table.column("submitted_ns").combine_chunks()),
        client_lag_ns=_numpy(table.column("client_lag_ns").combine_chunks()),
        finished=finished,
        completed=completed,
        sampled=completed & (np.diff(commit_start) > 0),
        tokens=tokens,
        commit_start=commit_start,
        commit_ns=commit_ns,
        commit_tokens=commit_tokens,
        stamp_lag_ns=_ragged(table, "stamp_lag_ns")[1],
        token_start=token_start,
        token_ids=token_ids,
        known=_known(tokens, token_start, token_ids),
        labels=labels,
        scores=_columns(table, SCORE_PREFIX),
        counts=_columns(table, COUNT_PREFIX),
        read=read,
        has_texts=has_texts,
    )


def _known(tokens: Ints, token_start: Ints, token_ids: NDArray[np.int32]) -> Flags:
    known = np.diff(token_start) == tokens
    unknown = np.flatnonzero(token_ids == UNKNOWN_TOKEN)
    known[np.searchsorted(token_start, unknown, side="right") - 1] = False
    return np.asarray(known)


def from_record(record: TrialRecord) -> RequestArrays:
    """The same columns straight from a record in memory (the self-test uses it)."""
    from results.store import columns

    return from_table(columns.to_table(record))


def _ragged(table: Any, name: str, dtype: type = np.int64) -> tuple[Ints, Any]:
    return _parts(table.column(name), dtype)


def _parts(column: Any, dtype: type = np.int64) -> tuple[Ints, Any]:
    """Of a column of lists where each begins, and all values."""
    column = column.combine_chunks()
    start = _numpy(column.offsets).astype(np.int64)
    values = _numpy(column.values)
    return start - start[0], values[start[0] : start[-1]].astype(dtype, copy=False)


def _columns(table: Any, prefix: str) -> dict[str, Floats]:
    return {
        name.removeprefix(prefix): _floats(table.column(name).combine_chunks())
        for name in table.column_names
        if name.startswith(prefix)
    }


def _floats(array: Any) -> Floats:
    """Null becomes NaN."""
    if array.null_count:
        return np.array(array.to_pylist(), float)
    return np.asarray(_numpy(array))


def _numpy(array: Any) -> Any:
    # Arrow's own to_numpy imports pandas, which costs more than all of this
    return np.from_dlpack(array)
