"""A trace in memory: a row for each request, as it was recorded."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.names import row_id
from harness.core.nouns import FinishReason

Counts = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request: A attempts at E exits in P passes (see `harness.core.nouns.Decisions`)."""

    workload: str
    request_id: str
    prompt_tokens: int
    answer_tokens: int
    finished: FinishReason
    positions: Counts
    """(A,)"""
    confidence: NDArray[np.float32]
    """(A, E), NaN where the exit was not asked."""
    agrees: NDArray[np.int8]
    """(A, E), 1, 0, or -1 where nobody knows."""
    drafted: Counts
    """(P,)"""
    accepted: Counts
    """(P,)"""
    batch: Counts
    """(P,)"""
    asked: Counts = field(default_factory=lambda: np.zeros(0, np.int32))
    """(P,) of a method that drafts chains, else (0,)."""
    offered: Counts = field(default_factory=lambda: np.zeros(0, np.int32))
    """(P,) of a method that verifies trees of guesses, else (0,)."""

    def end(self, max_new_tokens: int, *, ignore_eos: bool) -> int | None:
        """With how many tokens the answer to a request ends, as if by a stop token; None where
        `max_new_tokens` ends it."""
        tokens, most = self.answer_tokens, max_new_tokens
        if ignore_eos or tokens > most or (tokens == most and self.finished == "length"):
            return None
        return tokens


@dataclass(frozen=True, slots=True)
class DecisionTrace:
    """A recorded trace."""

    method: str
    """The backend that was recorded."""
    depth: int | None
    """Layers of the recorded model; None where the run does not tell."""
    exits: tuple[int, ...]
    """Layers of that model after which confidence was asked, ascending."""
    thresholds: tuple[float, ...]
    """Those under which it was recorded, one for each exit."""
    settings: Mapping[str, Any]
    """The backend's options in force."""
    model: str
    checksum: str | None
    """Of the recorded model."""
    rows: tuple[TraceRow, ...]
    """At least one."""
    _places: Mapping[str, int] = field(init=False, repr=False, compare=False)
    _alike: Mapping[str, Sequence[TraceRow]] = field(init=False, repr=False, compare=False)
    """By workload; those of all under no name."""

    def __post_init__(self) -> None:
        places = {row.request_id: place for place, row in enumerate(self.rows)}
        object.__setattr__(self, "_places", places)
        alike = {name: [r for r in self.rows if r.workload == name] for name in self.workloads}
        object.__setattr__(self, "_alike", alike | {"": self.rows})

    @property
    def workloads(self) -> tuple[str, ...]:
        """In the order of the rows."""
        return tuple(dict.fromkeys(row.workload for row in self.rows))

    @property
    def fractions(self) -> tuple[float, ...]:
        """Each exit's depth as a share of the model's, ascending."""
        return tuple(layer / self.depth for layer in self.exits) if self.depth else ()

    def row_for(self, request_id: str, max_new_tokens: int, *, ignore_eos: bool) -> TraceRow:
        """The request's own row, each time that it is asked, else one that its id decides, whatever
        the load is: of its workload's, where the trace has the workload."""
        own = row_id(request_id, self._places)
        place = self._places.get(own)
        if place is not None:
            return self.rows[place]
        some = self._alike[self._workload(own)]
        return some[zlib.crc32(own.encode()) % len(some)]

    def _workload(self, request_id: str) -> str:
        """Of a request that was not recorded; empty where the trace lacks it."""
        begun = [name for name in self._alike if name and request_id.startswith(f"{name}-")]
        return max(begun, key=len, default="")

    def samples(self) -> Sequence[TraceRow]:
        """Rows that stand for all: all of them."""
        return self.rows
