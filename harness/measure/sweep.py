"""Run many trials: in a fair order, each engine in a process of its own, resuming what is stored.

This module sees no backend: sessions are opened in child processes (`harness.measure.child`), by
the fleet that is handed in as the store is. What a child does to itself costs the trial under
way and nothing else.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from harness.core.backend import Backend
from harness.core.errors import UserError
from harness.core.names import repeat_label
from harness.core.nouns import (
    BackendInfo,
    Generation,
    Request,
    Status,
    Trial,
    TrialRecord,
    Validity,
)
from harness.measure.fleet import Edited, Fleet
from harness.measure.load_loop import LoadProgress
from harness.measure.messages import Phase, TrialJob
from harness.measure.turns import cell_by_cell, engine_by_engine

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Runs on while the machine sleeps and never jumps; it starts anew with the machine."""
DEFAULT_TIME_LIMIT_S = 3600.0
"""For each phase of a trial: preparing, warm-up, load and scoring."""


class MeasuredSession(Protocol):
    """A loaded engine and what turns trials into requests. Lives in a child process."""

    @property
    def info(self) -> BackendInfo:
        """The backend's."""

    @property
    def setup_s(self) -> float:
        """Seconds that loading took."""

    @property
    def backend(self) -> Backend:
        """The loaded engine."""

    def requests(self, trial: Trial) -> tuple[list[Request], list[Request]]:
        """Warm-up requests on prompts of their own, and the measured ones."""

    def remarks(self, trial: Trial) -> list[str]:
        """What is to be known of a trial's requests, for its verdict; it stays valid."""

    def finish(
        self, trial: Trial, generations: list[Generation]
    ) -> tuple[dict[str, str], dict[str, dict[str, float]]]:
        """Decoded texts and task scores by request id; outside the timed window."""

    def close(self) -> None:
        """Free the engine."""


OpenSession = Callable[[Trial], MeasuredSession]
"""A function of a module, so that a child can import it. May raise `UserError`."""


class StoreProtocol(Protocol):
    """Where records go."""

    def has(self, key: str) -> bool:
        """Whether a record with status "ok" is stored."""

    def write(self, record: TrialRecord) -> None:
        """Put the record on the disk before returning. Raises `OSError` when that fails."""


@dataclass(frozen=True, slots=True)
class SweepEvent:
    """Something happened to the trial number `index` (from 0) of the `total` still to run; 0 where
    nobody knows how many there will be."""

    kind: Literal["started", "phase", "progress", "finished"]
    index: int
    total: int
    trial: Trial
    phase: Phase | None = None
    progress: LoadProgress | None = None
    tokens_per_s: float = 0.0
    """Output tokens per second since the load began."""
    record: TrialRecord | None = None
    refused: bool = False
    """Failed for its input, as every trial of this engine will (`SweepResult.refusals`)."""
    side: str = ""
    """Which version of the code runs it, where there are two."""

    @property
    def label(self) -> str:
        """Short text for a progress line."""
        trial = self.trial
        model = [trial.model.label()] if trial.model.shape else []
        side = [self.side] if self.side else []
        parts = (trial.workload.name, trial.load.label(), f"repeat {repeat_label(trial.repeat)}")
        return " | ".join([*side, trial.backend, *model, *parts])


@dataclass(slots=True)
class SweepResult:
    """How a sweep ended."""

    statuses: Counter[Status] = field(default_factory=Counter)
    """Trials run now, by status."""
    stored: int = 0
    """Trials that were skipped because their record was there."""
    left: int = 0
    """Trials that were not begun, for want of time."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Failed trials whose input an engine or a server refused, by what it said."""

    @property
    def failed(self) -> int:
        """Trials run now that did not end well."""
        return self.statuses.total() - self.statuses["ok"]

    def note(self, record: TrialRecord, *, refused: bool, side: str = "") -> None:
        """Count a trial that was run now, by which `side` if there are two; `refused`: for its
        input."""
        self.statuses[record.status] += 1
        if refused:
            told = by_backend(record.trial.backend, record.error)
            self.refusals[f"{side}: {told}" if side else told] += 1


def run_sweep(
    trials: Sequence[Trial],
    store: StoreProtocol,
    fleet: Fleet,
    *,
    environment: Mapping[str, Any],
    fingerprint: str,
    code: Callable[[Trial], str | None] = lambda trial: None,
    edited: Edited = lambda trial: "",
    time_limit_s: float | None = DEFAULT_TIME_LIMIT_S,
    events: Callable[[SweepEvent], None] | None = None,
    budget_s: float | None = None,
) -> SweepResult:
    """Run the trials that `store` does not have, storing each record before the next trial begins.

    A trial whose child raises, dies, runs out of memory or outlives `time_limit_s` is stored with
    that status, and its engine starts afresh for the next one; an engine that fails to start twice
    in a row is not tried again. `fleet`: starts the engines; which of them stay loaded behind the
    sweep is its own. `code`: what pins the code that runs and measures a trial and the
    files that it reads; it is part of the trial's key. `edited`: what of that is something else by
    now, for which a trial fails (`Fleet.run`). `budget_s`: no trial begins later than so many
    seconds after the first. Where the engines of a model do not fit side by side, the rest goes
    engine by engine (`harness.measure.turns`).

    Each record's environment names this call (`invocation`) and the seconds since it began.

    Raises `UserError` when a record cannot be stored (all stored before stays). No engine survives
    what is raised.
    """
    keyed = {trial.key(fingerprint, code(trial)): trial for trial in cell_by_cell(trials)}
    rest = [trial for key, trial in keyed.items() if not store.has(key)]
    total, together = len(rest), True
    result = SweepResult(stored=len(keyed) - total)
    invocation = Invocation()
    try:
        for index in range(total):
            now = invocation.now()
            if budget_s is not None and now["since_invocation_s"] > budget_s:
                result.left = total - index
                break
            trial, *rest = rest
            pinned = {"fingerprint": fingerprint, "code": code(trial), **now}
            key = trial.key(fingerprint, code(trial))
            job = TrialJob(key, trial, {**environment, **pinned}, time_limit_s)
            teller = Teller(events, index, total, trial)
            teller.tell("started")
            record = fleet.run(job, rest, teller.message, edited=edited)
            if fleet.crowded and together:
                together, rest = False, engine_by_engine(rest, trial.engine_key(), trials)
            result.note(record := write_record(store, record), refused=fleet.refused)
            teller.tell("finished", record=record, refused=fleet.refused)
    except BaseException:
        fleet.close(at_once=True)
        raise
    return result


def by_backend(name: str, error: object) -> str:
    """What went wrong, with the backend's name in front unless it stands there already."""
    return str(error) if str(error).startswith(f"backend '{name}'") else f"{name}: {error}"


class Invocation:
    """One call of `run_sweep`, and the clock that tells its trials apart in time."""

    def __init__(self) -> None:
        self._id, self._began_s = uuid.uuid4().hex[:12], time.clock_gettime(CLOCK)

    def now(self) -> dict[str, Any]:
        """What a record's environment has of it."""
        since_s = time.clock_gettime(CLOCK) - self._began_s
        return {"invocation": self._id, "since_invocation_s": since_s}


def write_record(store: StoreProtocol, record: TrialRecord) -> TrialRecord:
    """Store the record; one that a backend filled with what cannot be stored has failed. Returns
    what was stored."""
    try:
        store.write(record)
        return record
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        told = f"what the backend handed out cannot be stored: {type(error).__name__}: {error}"
        emptied = replace(
            record,
            status="failed",
            error=" ".join(told.split())[:500],
            backend=None,
            generations=(),
            texts={},
            scores={},
            validity=Validity(valid=False, reasons=("failures: nothing could be stored",)),
        )
        store.write(emptied)
        return emptied
    except OSError as error:
        where = error.filename or getattr(store, "path", None) or "the results folder"
        raise UserError(
            f"{where}: cannot store trial {record.key}: {error.strerror or error}; "
            "the trials stored before it are safe: make room and run the same command again"
        ) from error


@dataclass(slots=True)
class Teller:
    """Turns what a child says about one trial into events."""

    events: Callable[[SweepEvent], None] | None
    index: int
    total: int
    trial: Trial
    side: str = ""
    began_s: float = 0.0
    """When the phase under way began."""

    def tell(self, kind: Literal["started", "phase", "progress", "finished"], **more: Any) -> None:
        """An event of this kind, with what `SweepEvent` has beside the trial."""
        if self.events is not None:
            self.events(
                SweepEvent(kind, self.index, self.total, self.trial, side=self.side, **more)
            )

    def message(self, content: Phase | LoadProgress) -> None:
        """What a child has said."""
        now = time.monotonic()
        if isinstance(content, str):
            self.began_s = now
            self.tell("phase", phase=content)
        else:
            elapsed = now - self.began_s
            rate = content.tokens / elapsed if elapsed > 0 else 0.0
            self.tell("progress", phase="load", progress=content, tokens_per_s=rate)
