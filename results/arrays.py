"""One trial's requests as numpy columns, so that no metric loops over requests in Python.

Ragged columns are stored flat with a start index per request: the commits of request r are
``commit_ns[commit_start[r]:commit_start[r + 1]]``. Commits that carried no token (a server's last,
empty chunk) are left out: they are not output.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core import TrialRecord
from results import columns

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RequestArrays:
    """R requests with C commits and T output tokens in all; times are int64 nanoseconds."""

    ids: list[str]
    scheduled_ns: Ints
    submitted_ns: Ints
    client_lag_ns: Ints
    finished: NDArray[np.object_]
    """(R,) "stop", "length", "error" or None."""
    commit_start: Ints
    """(R + 1,)"""
    commit_ns: Ints
    """(C,)"""
    commit_tokens: Ints
    """(C,) at least 1"""
    token_start: Ints
    """(R + 1,)"""
    token_ids: Ints
    """(T,)"""
    scores: dict[str, Floats]
    """Task score name -> (R,), NaN where there is none."""
    errors: Any
    """Arrow column of R strings."""
    texts: Any
    """Arrow column of R strings."""
    telemetry: Any
    """Arrow column of R JSON objects."""

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def completed(self) -> Flags:
        """(R,) ended by "stop" or "length"; only these are ever samples."""
        return np.asarray((self.finished == "stop") | (self.finished == "length"), bool)

    @property
    def failed(self) -> Flags:
        """(R,) ended by "error"."""
        return np.asarray(self.finished == "error", bool)

    def tokens(self) -> Ints:
        """(R,) output tokens of each request, counted over its commits."""
        total = np.concatenate(([0], np.cumsum(self.commit_tokens)))
        return np.diff(total[self.commit_start])

    def sampled(self) -> Flags:
        """(R,) requests that count as latency samples: completed, with at least one token."""
        return self.completed & (np.diff(self.commit_start) > 0)

    def first_commit(self) -> Ints:
        """(K,) index of the first commit of each of the K sampled requests."""
        return self.commit_start[:-1][self.sampled()]

    def last_commit(self) -> Ints:
        """(K,) index of the last commit of each of the K sampled requests."""
        return self.commit_start[1:][self.sampled()] - 1

    def counts(self, row: int) -> dict[str, float]:
        """The telemetry of one request."""
        found: dict[str, float] = json.loads(self.telemetry[row].as_py() or "{}")
        return found


def from_table(table: Any) -> RequestArrays:
    """Numpy columns of an Arrow table made by `results.columns.to_table`."""
    commit_start, commit_ns = _ragged(table, "commit_ns")
    tokens_start, commit_tokens = _ragged(table, "commit_tokens")
    if not np.array_equal(commit_start, tokens_start):
        raise ValueError("commit_ns and commit_tokens differ in length")
    if not commit_tokens.all():
        kept = commit_tokens > 0
        commit_start = np.concatenate(([0], np.cumsum(kept)))[commit_start]
        commit_ns, commit_tokens = commit_ns[kept], commit_tokens[kept]
    token_start, token_ids = _ragged(table, "token_ids")
    return RequestArrays(
        ids=table.column("request_id").to_pylist(),
        scheduled_ns=table.column("scheduled_ns").to_numpy(),
        submitted_ns=table.column("submitted_ns").to_numpy(),
        client_lag_ns=table.column("client_lag_ns").to_numpy(),
        finished=np.asarray(table.column("finished").to_pylist(), object),
        commit_start=commit_start,
        commit_ns=commit_ns,
        commit_tokens=commit_tokens,
        token_start=token_start,
        token_ids=token_ids,
        scores={
            name.removeprefix(columns.SCORE_PREFIX): table.column(name).to_numpy().astype(float)
            for name in table.column_names
            if name.startswith(columns.SCORE_PREFIX)
        },
        errors=table.column("error"),
        texts=table.column("text"),
        telemetry=table.column("telemetry"),
    )


def from_record(record: TrialRecord) -> RequestArrays:
    """The same columns straight from a record in memory (the self-test uses it)."""
    return from_table(columns.to_table(record))


def _ragged(table: Any, name: str) -> tuple[Ints, Ints]:
    column = table.column(name).combine_chunks()
    start = column.offsets.to_numpy().astype(np.int64)
    values = column.values.to_numpy()
    return start - start[0], values[start[0] : start[-1]].astype(np.int64, copy=False)
