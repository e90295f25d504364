"""What a trial's key pins, and which stored trials an older state of it ran.

A key holds the trial and the machine, and by content:

* the sources that the backend's own module reaches (`harness.core.closure`), and the files that
  its options name, such as exit heads (`backends.pins`);
* the sources that measure: what the child process reaches (`MEASURING`: load loop, checks, meters,
  warm-up, prompts, arrivals, scoring), of the sandbox for the workload that runs programs only;
* of the tables of backends and workloads, the lines that the trial names.

Left out is what pins itself by content (`PINNED_OTHERWISE`), and what decides whether and when a
trial runs but not what it measures: the sweep, the command line, reports, results, training.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends import pins as backend_pins
from harness.core.closure import Sources, digest, written
from harness.core.errors import UserError
from harness.core.names import STAND_IN
from harness.core.nouns import Trial, canonical_json, to_json
from harness.measure.machine.environment import fingerprint
from results.compare.machines import differing
from results.store.folder import Store
from results.store.records import BrokenRecordError, StoredTrial
from workloads import measurable

if TYPE_CHECKING:
    from harness.cli.against.checkout import Checkout

MEASURING = ("harness.measure.engine_process", "harness.cli.session")
PINNED_OTHERWISE = (
    *("workloads.datasets", "workloads.readers"),
    *("backends.checkpoints.shapes", "backends.replayed"),
)
"""Rows, traces and models have a checksum in the trial, however they are read or made. What is said
of a replayed trace is no number of the trial."""
PROGRAMS = ("workloads.completions", "workloads.sandbox")
"""What scores programs alone."""
SCORED_AS_PROGRAMS = {
    "humaneval": tuple(f"workloads.sandbox.{name}" for name in ("child", "calls", "lock", "values"))
}
"""By workload, the modules that the sandbox's children are made of; it reads them as files."""
NAMED_SETTINGS = {
    "slo": "objective (slo)",
    "workload": "set of prompts",
    "max_new_tokens": "length of answers (max_new_tokens)",
    "requests": "number of requests",
    "reload": "way to load engines (reload)",
}
"""Fields of a trial as a user knows them; the others by their names."""
MOST_NAMED = 3


class Pins:
    """What pins trials beside their content and the machine. Each file is read once."""

    def __init__(self, sources: Sources | None = None) -> None:
        self._sources = Sources() if sources is None else sources
        self._code: dict[str, dict[str, str]] = {}
        self._measuring: dict[str, dict[str, str]] = {}
        self._files: dict[str, dict[str, str]] = {}
        self._written: dict[str, dict[Path, tuple[int, int] | None]] = {}
        """By engine, of the files of its options, from before they were read."""
        self._digests: dict[tuple[str, str], str] = {}

    def of(self, trial: Trial) -> str:
        """16 hex digits of `parts`."""
        key = trial.engine_key(), trial.workload.name
        if key not in self._digests:
            self._digests[key] = digest(canonical_json(self.parts(trial)).encode())
        return self._digests[key]

    def parts(self, trial: Trial) -> dict[str, str]:
        """Each source and each file of an option by a short name, with 16 hex digits. Raises
        `UserError` for a source that is no Python."""
        engine, name, workload = trial.engine_key(), trial.backend, trial.workload.name
        if name not in self._code:
            self._code[name] = backend_pins.code(name, self._sources)
        if workload not in self._measuring:
            self._measuring[workload] = self._measuring_code(workload)
        if engine not in self._files:
            asked = name, trial.model, trial.options
            self._written[engine] = {path: written(path) for path in backend_pins.paths(*asked)}
            self._files[engine] = backend_pins.files(*asked)
        return self._code[name] | self._measuring[workload] | self._files[engine]

    def edited(self, trial: Trial) -> str:
        """What of `parts` was edited since they were read, in a line; empty where nothing was.
        Nothing is read again unless a file was written."""
        before = self.parts(trial)
        files = self._written[trial.engine_key()].items()
        if self._sources.are_as_read(before) and all(written(p) == seen for p, seen in files):
            return ""
        try:
            return changes(before, Pins(self._sources.read_again()).parts(trial))
        except (UserError, LookupError, OSError) as error:  # half of an edit
            return " ".join(str(error).split())

    def all_of(self, trials: Sequence[Trial]) -> dict[str, dict[str, str]]:
        """`parts` of all of them, by `of`."""
        return {self.of(trial): self.parts(trial) for trial in trials}

    def _measuring_code(self, workload: str) -> dict[str, str]:
        children = SCORED_AS_PROGRAMS.get(workload)
        without = PINNED_OTHERWISE if children else (*PINNED_OTHERWISE, *PROGRAMS)
        known = {f"workload {workload}": digest(repr(measurable().get(workload)).encode())}
        return known | self._sources.closure((*MEASURING, *(children or ())), without)


class OlderTrials:
    """What a run folder holds of the trials of some backends, by this machine and others.

    A trial that an older state of our code ran on this machine, or one with older exit heads, stays
    until the same trial, run by today's, is stored: then it would count as one repeat more."""

    def __init__(
        self,
        store: Store,
        machine: Mapping[str, Any],
        names: Collection[str],
        pins: Pins | Checkout,
    ) -> None:
        self._store, self._machine, self._pins = store, machine, pins
        self._fingerprint = fingerprint(machine)
        self._same: dict[str, list[StoredTrial]] = {}
        for _, stored in whole_records(store):
            if stored.record.trial.backend in names:
                self._same.setdefault(_content(stored.record.trial), []).append(stored)

    def of_others(self) -> str:
        """That trials of another machine or set-up are in the folder, in a line; empty without."""
        every = [stored for same in self._same.values() for stored in same]
        others = [s.record.environment for s in every if not self._is_ours(s)]
        if not others:
            return ""
        names = _names(differing([self._machine, *others]))
        trials = f"{len(others)} stored trial{'s' * (len(others) > 1)}"
        return f"{trials} of another machine or set-up ({names}): kept, in rows of their own"

    def drop_replaced(self) -> None:
        """Remove what stands beside today's, as a kill between the two leaves it."""
        for same in self._same.values():
            trial = same[0].record.trial
            if self._store.has(self._key(trial)):
                self.drop(trial)

    def drop(self, trial: Trial) -> None:
        """Today's good record of a trial is stored now: remove the older ones of this machine, and
        what was measured in their place."""
        again = replace(trial, repeat=trial.repeat + STAND_IN)
        for older in (*self._older(trial), *self._older(again)):
            if self._is_ours(older):
                self._store.remove(older.record.key)

    def note(self, trial: Trial) -> str:
        """For a trial that a run would skip: "stored"; for one that would run again although there
        is a record of it: why. Else nothing."""
        if self._store.has(self._key(trial)):
            return "stored"
        older = sorted(self._older(trial), key=lambda s: (self._is_ours(s), s.record.started_at))
        if older:
            return f"runs again: {self._reason(older[-1], trial)}"
        same = self._same.get(_content(trial), [])
        if same and same[0].has_failed_requests:
            return "runs again: requests of it failed"
        return f"runs again: its record says '{same[0].record.status}'" if same else ""

    def _reason(self, older: StoredTrial, trial: Trial) -> str:
        environment = older.record.environment
        if not self._is_ours(older):
            found = _names(differing([environment, self._machine]))
            return f"other machine or set-up ({found})"
        parts = self._store.read_code(str(environment.get("code")))
        if parts is None:
            return "its record does not say which code measured it"
        return changes(parts, self._pins.parts(trial))

    def _older(self, trial: Trial) -> list[StoredTrial]:
        key = self._key(trial)
        return [s for s in self._same.get(_content(trial), []) if s.record.key != key]

    def _is_ours(self, stored: StoredTrial) -> bool:
        return bool(stored.record.environment.get("fingerprint") == self._fingerprint)

    def _key(self, trial: Trial) -> str:
        return trial.key(self._fingerprint, self._pins.of(trial))


def of_other_settings(store: Store, trials: Sequence[Trial]) -> str:
    """That trials of an experiment before it was changed are in the folder, and what was, in a
    line; empty without. `trials`: today's."""
    today, asked = {_cell(trial): trial for trial in trials}, {_content(trial) for trial in trials}
    stored = [s.record.trial for _, s in whole_records(store)]
    others = [t for t in stored if _content(t) not in asked and _cell(t) in today]
    if not others:
        return ""
    pairs = [(to_json(trial), to_json(today[_cell(trial)])) for trial in others]
    every = dict.fromkeys(name for pair in pairs for one in pair for name in one)
    names = [n for n in every if any(old.get(n) != new.get(n) for old, new in pairs)]
    what = ", ".join(NAMED_SETTINGS.get(name, name) for name in names)
    trials_are = "trial is" if len(others) == 1 else "trials are"
    return f"{len(others)} stored {trials_are} of another {what}: kept, in rows of their own"


def with_failures(store: Store, trials: Sequence[Trial]) -> int:
    """How many of these trials are stored as ended well though requests of theirs failed."""
    asked = {_content(trial) for trial in trials}
    stored = (s for _, s in whole_records(store) if s.has_failed_requests)
    return sum(_content(s.record.trial) in asked for s in stored)


def _cell(trial: Trial) -> str:
    """Equal for trials of one place in the tables, but for their settings."""
    model, data, load = trial.model.label(), trial.workload.name, trial.load.label()
    return canonical_json([trial.backend, to_json(trial.options), model, data, load, trial.repeat])


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What differs between the `Pins.parts` of one trial, in a line."""
    kinds = {
        "changed": [name for name in now if before.get(name, now[name]) != now[name]],
        "new": [name for name in now if name not in before],
        "gone": [name for name in before if name not in now],
    }
    return "; ".join(f"{_names(sorted(names))} {kind}" for kind, names in kinds.items() if names)


def _names(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _content(trial: Trial) -> str:
    """Equal for one trial, whatever ran it."""
    return trial.key("")


def whole_records(store: Store) -> Iterator[tuple[str, StoredTrial]]:
    """The whole records of a folder; damaged ones are left out, since they are run again. Raises
    `UserError` for foreign records and other schema versions."""
    for key in store.keys() if store.trials_folder.exists() else []:
        with contextlib.suppress(BrokenRecordError):
            yield key, store.read_stored(key)
