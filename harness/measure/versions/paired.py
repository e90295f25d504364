"""A sweep over two versions of the code, trial by trial in turns, so that what the machine does
meanwhile hits both alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.nouns import Trial
from harness.measure.fleet import Edited, Fleet
from harness.measure.messages import TrialJob
from harness.measure.sweep import (
    DEFAULT_TIME_LIMIT_S,
    Invocation,
    OpenSession,
    StoreProtocol,
    SweepEvent,
    SweepResult,
    Teller,
    write_record,
)
from harness.measure.turns import engine_by_engine, pair_by_pair
from harness.measure.versions.version import CodeVersion


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two."""

    name: str
    store: StoreProtocol
    environment: Mapping[str, Any]
    fingerprint: str
    code: Callable[[Trial], str | None]
    """As in `run_sweep`, and `edited`."""
    version: CodeVersion | None = None
    """None: the code that runs here."""
    edited: Edited = lambda trial: ""

    def key(self, trial: Trial) -> str:
        """Under which its record of a trial is stored."""
        return trial.key(self.fingerprint, self.code(trial))

    def has(self, trial: Trial) -> bool:
        """Whether it has run a trial."""
        return self.store.has(self.key(trial))


Half = tuple[Trial, Side]
"""A trial on one side: with the other side's it makes a pair."""


def run_paired(
    trials: Sequence[Trial],
    sides: tuple[Side, Side],
    open_session: OpenSession,
    *,
    time_limit_s: float | None = DEFAULT_TIME_LIMIT_S,
    events: Callable[[SweepEvent], None] | None = None,
    log_dir: Path | None = None,
    weight_bytes: Callable[[Trial], int] = lambda trial: 0,
) -> SweepResult:
    """Run each trial on both sides, one directly behind the other and in either order in turns
    (`pair_by_pair`), and store each record with its side before the next one begins.

    A pair of which one half is missing is run again as a whole: halves of two sessions are none.
    Engines of both versions stay loaded side by side as far as memory holds; where those of one
    model do not fit, each version has its trials of an engine and a repeat in a row, and which of
    them begins alternates with the repeats. Arguments and errors as in `run_sweep`. No child
    survives.
    """
    rest = [
        (trial, side)
        for trial, turned in pair_by_pair(trials)
        if not all(side.has(trial) for side in sides)
        for side in (sides[::-1] if turned else sides)
    ]
    total, together = len(rest), True
    result = SweepResult(stored=2 * len(trials) - total)
    versions = {side.name: side.version for side in sides}
    fleet = Fleet(open_session, log_dir, weight_bytes, versions=versions)
    invocation = Invocation()
    try:
        for index in range(total):
            (trial, side), *rest = rest
            teller = Teller(events, index, total, trial, side.name)
            teller.tell("started")
            pinned = {"fingerprint": side.fingerprint, "code": side.code(trial)}
            environment = {**side.environment, **pinned, **invocation.now()}
            job = TrialJob(side.key(trial), trial, environment, time_limit_s)
            upcoming = list({one.key(""): one for one, _ in rest}.values())
            record = fleet.run(job, upcoming, teller.message, side.name, edited=side.edited)
            if fleet.crowded and together:
                together, rest = False, _version_by_version(rest, trial, trials, sides)
            record = write_record(side.store, record)
            result.note(record, refused=fleet.refused, side=side.name)
            teller.tell("finished", record=record, refused=fleet.refused)
    except BaseException:
        fleet.close(at_once=True)
        raise
    fleet.close()
    return result


def _version_by_version(
    rest: Sequence[Half], last: Trial, trials: Sequence[Trial], sides: tuple[Side, Side]
) -> list[Half]:
    """The order for engines that do not fit beside each other."""
    left = {trial.key(""): trial for trial, _ in rest}
    ordered = engine_by_engine(list(left.values()), last.engine_key(), trials)
    turns = {repeat: turn for turn, repeat in enumerate(sorted({t.repeat for t in trials}))}
    blocks: dict[tuple[int, str], list[Trial]] = {}
    for trial in ordered:
        blocks.setdefault((trial.repeat, trial.engine_key()), []).append(trial)
    todo = {(trial.key(""), side.name) for trial, side in rest}
    return [
        (trial, side)
        for (repeat, _), block in blocks.items()
        for side in (sides[::-1] if turns[repeat] % 2 else sides)
        for trial in block
        if (trial.key(""), side.name) in todo
    ]
