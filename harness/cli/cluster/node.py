"""What runs on a node: trials as on one machine, and the tidings of them.

An instance is a Ray actor whose methods may be called at the same time. Engines are children of its
process, started by one thread, which lives as long as it does: the kernel kills a child when the
thread that started it ends.
"""

from __future__ import annotations

import os
import queue
import tempfile
import threading
import traceback
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import backends
from backends.checkpoints import models
from harness.cli import wiring
from harness.cli.asked.beforehand import refuse_unscorable
from harness.cli.asked.memory import refuse_too_large
from harness.cli.pins import Pins
from harness.cli.session import open_session
from harness.core.errors import UserError
from harness.core.nouns import Trial, TrialRecord
from harness.measure.fleet import Fleet
from harness.measure.machine import tuning
from harness.measure.machine.environment import environment, fingerprint
from harness.measure.sweep import SweepEvent, SweepResult, run_sweep


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as it describes itself."""

    environment: Mapping[str, Any]
    fingerprint: str
    code: Mapping[str, str]
    """By engine and workload of a trial (`code_key`), what pins its code here."""
    checksums: Mapping[str, str]
    """By label of a model: of what lies here under its name; the reason, where nothing does."""
    refused: str | None = None
    """Why this machine cannot run the trials; then no model was read."""
    logs: Path | None = None
    """The folder on this node for what engines print; None: nowhere."""


@dataclass(frozen=True, slots=True)
class ShareOver:
    """A share was run to its end; or the sweep could not go on, for a reason."""

    result: SweepResult | None
    error: str | None = None


Tiding = SweepEvent | ShareOver


def code_key(trial: Trial) -> str:
    """Trials with the same one run the same code."""
    return f"{trial.engine_key()} {trial.workload.name}"


class NodeWorker:
    """Runs shares of trials on the node that it lives on.

    Args:
        logs: a folder for what engines print: that of the run, where a node can write into it,
            else the node has one of its own. None: nowhere.
    """

    def __init__(self, name: str, logs: Path | None) -> None:
        _forget_threads()
        self._name, self._logs = name, None if logs is None else _writable(logs)
        self._told: queue.SimpleQueue[Tiding] = queue.SimpleQueue()
        self._shares: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def ready(self) -> str:
        """Answers as soon as this process can: with what ``dtype: auto`` means here."""
        return wiring.preferred_dtype()

    def describe(self, trials: Sequence[Trial]) -> NodeState:
        """The machine, the code and the models here, which are read for it unless their digests
        are remembered on this machine (`backends.checkpoints.digests`)."""
        here, pins, refused = environment(), Pins(), _refused(trials)
        return NodeState(
            {**here, "node": self._name},
            fingerprint(here),
            {code_key(trial): pins.of(trial) for trial in trials},
            {} if refused else {trial.model.label(): _checksum(trial) for trial in trials},
            refused,
            self._logs,
        )

    def begin(self, trials: Sequence[Trial], stored: Collection[str], time_limit_s: float) -> None:
        """Run the trials but for those with a key that is stored; returns at once."""
        self._shares.put((trials, stored, time_limit_s))

    def tidings(self, wait_s: float) -> list[Tiding]:
        """What has happened since the last call; waits so long for the first of it."""
        found: list[Tiding] = []
        try:
            found.append(self._told.get(timeout=wait_s))
            while True:
                found.append(self._told.get_nowait())
        except queue.Empty:
            return _newest(found)

    def _work(self) -> None:
        fleet = Fleet(open_session, self._logs, wiring.weight_bytes, stay="room")
        while True:
            trials, stored, time_limit_s = self._shares.get()
            try:
                result = self._sweep(fleet, trials, stored, time_limit_s)
                self._told.put(ShareOver(result))
            except UserError as error:
                self._told.put(ShareOver(None, str(error)))
            except Exception as error:
                traceback.print_exc()
                self._told.put(ShareOver(None, f"{type(error).__name__}: {models.one_line(error)}"))

    def _sweep(
        self,
        fleet: Fleet,
        trials: Sequence[Trial],
        stored: Collection[str],
        time_limit_s: float,
    ) -> SweepResult:
        here, pins = environment(), Pins()
        return run_sweep(
            trials,
            _Elsewhere(stored),
            fleet,
            environment={**here, "node": self._name},
            fingerprint=fingerprint(here),
            code=pins.of,
            edited=pins.edited,
            time_limit_s=time_limit_s,
            events=self._told.put,
        )


class _Elsewhere:
    """The store of a node: what is told is stored where the sweep was started."""

    def __init__(self, stored: Collection[str]) -> None:
        self._stored = set(stored)

    def has(self, key: str) -> bool:
        return key in self._stored

    def write(self, record: TrialRecord) -> None:
        """The event of the trial's end has the record."""


def _forget_threads() -> None:
    """Ray gives an actor as many threads of OpenMP as it has processors, unless the node was
    started with a number: engines are to have those of a run without Ray."""
    threads, raylet = "OMP_NUM_THREADS", os.environ.get("RAY_RAYLET_PID")
    if raylet is not None and threads not in psutil.Process(int(raylet)).environ():
        os.environ.pop(threads, None)
        tuning.STARTED_WITH.pop(threads, None)


def _writable(logs: Path) -> Path:
    """`logs` where it is there or can be made in its folder, else one that is made now."""
    there = logs if os.access(logs, os.F_OK) else logs.parent
    if os.access(there, os.W_OK | os.X_OK):
        return logs
    return Path(tempfile.mkdtemp(prefix="decodebench-logs-"))


def _newest(found: Sequence[Tiding]) -> list[Tiding]:
    """Without the progress that a later tiding has overtaken."""
    last = len(found) - 1
    return [
        one
        for place, one in enumerate(found)
        if place == last or not (isinstance(one, SweepEvent) and one.kind == "progress")
    ]


def _refused(trials: Sequence[Trial]) -> str | None:
    """What a run on this machine would be refused for, before an engine is loaded; None: it is not.
    Of a shape that this machine cannot hold no weights are made."""
    models_run = {t.model for t in trials if backends.load_class(t.backend).needs_model}
    try:
        refuse_unscorable(trials)
        for model in models_run:
            if model.shape:
                refuse_too_large(
                    model, [(t.backend, t.options) for t in trials if t.model == model]
                )
        wiring.warnings(trials)
    except UserError as error:
        return str(error)
    return None


def _checksum(trial: Trial) -> str:
    """Of the model of that name here; why there is none, where there is none."""
    try:
        return models.checksum(wiring.model_folder(trial.model))
    except UserError as error:
        return str(error)
