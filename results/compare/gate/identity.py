"""What must be equal before two runs may be compared, and which of it differs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.errors import UserError, nearest
from harness.core.names import FINGERPRINT_FIELDS, FINGERPRINT_PACKAGES, UNSOUND
from harness.core.nouns import Trial, canonical_json, to_json
from results.compare.gate.reduced import CellName, ReducedRun, ReducedTrial

ANSWERS = "answers"
"""Allowed like a field: lossless backends may give other answers than BASE's, which the margin of
`consistency` judges then."""
_TRIAL: Mapping[str, Callable[[Trial], Any]] = {
    "model.revision": lambda trial: trial.model.revision,
    "model.checksum": lambda trial: trial.model.checksum,
    "model.dtype": lambda trial: trial.model.dtype,
    "workload.checksum": lambda trial: trial.workload.checksum,
    "load.checksum": lambda trial: trial.load.checksum,
    "requests": lambda trial: trial.requests,
    "max_new_tokens": lambda trial: trial.max_new_tokens,
    "ignore_eos": lambda trial: trial.ignore_eos,
    "sampling": lambda trial: to_json(trial.sampling),
    "slo": lambda trial: to_json(trial.slo),
    "seed": lambda trial: trial.seed,
    "reload": lambda trial: bool(trial.reload),
}
REPLAY = "replay"
"""Of a trial that replays a trace, what the file holds: its cost is that of these decisions."""
DURATION = "duration_s"
"""For how long a load went on, where that and not `requests` ends it."""
RELOAD = "reload"
"""Whether each repeat had engines of its own, which no record did that does not tell."""
LATER = (REPLAY, DURATION)
"""Fields that records of before them do not tell; they may be compared with any."""
FIELDS = (
    *FINGERPRINT_FIELDS,
    *(f"packages.{name}" for name in FINGERPRINT_PACKAGES),
    *_TRIAL,
    *LATER,
)
"""All that can be allowed to differ, beside `ANSWERS` and `UNSOUND`."""
MEASURED = "ttft_s"
"""Times that no two trials share."""
GROUPS = {"machine": FIELDS[: len(FINGERPRINT_FIELDS) + len(FINGERPRINT_PACKAGES)]}
"""Names for several of them."""
_LONGEST = 60


def identity(
    trial: Trial, environment: Mapping[str, Any], parts: Mapping[str, str]
) -> dict[str, Any]:
    """Field -> value, for each of `FIELDS`; `parts`: what pins the trial (`harness.cli.pins`), as
    the store has it."""
    packages = environment.get("packages") or {}
    return {
        **{name: environment.get(name) for name in FINGERPRINT_FIELDS},
        **{f"packages.{name}": packages.get(name) for name in FINGERPRINT_PACKAGES},
        **{name: of(trial) for name, of in _TRIAL.items()},
        REPLAY: _replayed(trial, parts),
        DURATION: trial.duration_s,
    }


def _replayed(trial: Trial, parts: Mapping[str, str]) -> list[str]:
    asked = trial.options.get("replay")
    if not isinstance(asked, str):
        return []  # rates are among the options
    names = (Path(asked).name, ".parquet")
    return sorted(digest for part, digest in parts.items() if part.endswith(names))


def check_allowed(names: Iterable[str]) -> frozenset[str]:
    """The names, groups written out. Raises `UserError` for one that is no field."""
    found, known = set(names), {*FIELDS, *GROUPS, ANSWERS, UNSOUND}
    for name in sorted(found - known):
        raise UserError(f"--allow: unknown field '{name}'; {nearest(name, known)}")
    return frozenset(found.union(*(GROUPS[name] for name in found & GROUPS.keys())))


def check_alike(base: ReducedRun, new: ReducedRun, allowed: Collection[str]) -> frozenset[str]:
    """Fields in which cells of both runs differ, all of them in `allowed`. Raises `UserError`,
    which names the others."""
    theirs = new.cells()
    pairs = [(trials, theirs[cell]) for cell, trials in base.cells().items() if cell in theirs]
    check_one_version(base)
    check_one_version(new)
    differ: dict[str, tuple[Any, Any]] = {}
    for (one, *_), (other, *_) in pairs:
        for name in FIELDS:
            if name in LATER and not (name in one.identity and name in other.identity):
                continue
            unsaid = False if name == RELOAD else None
            values = one.identity.get(name, unsaid), other.identity.get(name, unsaid)
            if _text(values[0]) != _text(values[1]):
                differ.setdefault(name, values)
    if refused := [name for name in differ if name not in allowed]:
        told = ", ".join(f"{name} ({_shown(*differ[name])})" for name in refused)
        raise UserError(
            f"{base.where} and {new.where} may not be compared, they differ in {told}; "
            f"'{_allowing(refused)}' compares them all the same"
        )
    return frozenset(differ)


def _allowing(names: Collection[str]) -> str:
    """The options that allow all of these fields."""
    found = list(names)
    for group, fields in GROUPS.items():
        if len(found) - len(others := [name for name in found if name not in fields]) > 1:
            found = [group, *others]
    return " ".join(f"--allow {name}" for name in found)


def check_two_runs(base: ReducedRun, new: ReducedRun) -> None:
    """Raise `UserError` where NEW has each trial of BASE as the same measurement, so that it could
    be no worse: the run that the baseline was made of, or a copy. Some of them it may have: what an
    edit does not concern is not run again. Both have to be reduced with `MEASURED`."""
    theirs = {(trial.cell, trial.repeat): trial for trial in new.trials}
    pairs = [(one, theirs.get((one.cell, one.repeat))) for one in base.trials]
    if any(one.ended_well for one in base.trials) and all(
        other is not None and _is_one_measurement(one, other) for one, other in pairs
    ):
        raise UserError(
            f"{new.where}: NEW is BASE: these trials are those of {base.where}; expected two runs"
        )


def _is_one_measurement(one: ReducedTrial, other: ReducedTrial) -> bool:
    """Versions that run side by side begin in one second and in one call of `run`: what tells them
    apart are times, which a trial that did not end well does not have."""
    mine, theirs = ((t.status, t.started, t.invocation, t.fingerprint) for t in (one, other))
    if one.started is None or mine != theirs:
        return False
    times, others = (t.values.get(MEASURED) for t in (one, other))
    if times is None or others is None:
        return not one.ended_well
    return bool(np.array_equal(times, others, equal_nan=True))


def check_one_version(run: ReducedRun) -> None:
    """Raise `UserError` where repeats of one cell differ in a field."""
    for cell, trials in run.cells().items():
        for trial in trials[1:]:
            for name in FIELDS:
                _check_same(run.where, cell, name, trials[0], trial)


def _check_same(
    where: str, cell: CellName, name: str, one: ReducedTrial, other: ReducedTrial
) -> None:
    values = one.identity.get(name), other.identity.get(name)
    if _text(values[0]) != _text(values[1]):
        raise UserError(
            f"{where}: repeats of {cell.label()} differ in {name} ({_shown(*values)}); "
            "expected one run on one machine"
        )


def _shown(base: Any, new: Any) -> str:
    return " / ".join(_text(value)[:_LONGEST].strip('"') for value in (base, new))


def _text(value: Any) -> str:
    return canonical_json(to_json(value))
