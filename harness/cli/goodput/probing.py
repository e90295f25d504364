"""Probes of one system at chosen loads, on an engine that stays loaded; each is a stored trial."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Self

import numpy as np

from harness.cli import wiring
from harness.cli.cells.values import options_apart
from harness.cli.folders.run_folder import write_code, write_prompts
from harness.cli.pins import Pins
from harness.cli.session import open_session
from harness.core.errors import UserError
from harness.core.names import DISTURBANCES
from harness.core.nouns import Load, Model, Slo, Trial, TrialRecord, to_json
from harness.experiment.choices import BackendChoice, WorkloadChoice
from harness.experiment.config import Experiment
from harness.measure.fleet import Fleet
from harness.measure.machine.environment import environment, fingerprint
from harness.measure.messages import TrialJob
from harness.measure.sweep import (
    Invocation,
    SweepEvent,
    Teller,
    by_backend,
    write_record,
)
from results.compare.gate.reduced import workload_name
from results.compare.reasons import slug
from results.goodput.search import Probe
from results.goodput.shares import share_interval
from results.goodput.steady import steady_probe
from results.metrics import latency
from results.metrics.arrays import Floats, RequestArrays, from_file
from results.store.folder import Store
from workloads.datasets import rows_made

LATE = "client-late"
IDLE_REQUESTS = 20
MOST_LATE = 2
"""Probes in a row in which the client was late: then it is what limits."""
UNKNOWN = 0
"""How many probes there will be."""


@dataclass(frozen=True, slots=True)
class ProbedSystem:
    """What a rate is searched for."""

    backend: BackendChoice
    model: Model
    workload: WorkloadChoice
    place: str = ""
    """The workload as `compare` names it, and the model where there are several; empty: by name."""
    options: str = ""
    """In which it differs from other variants of its backend."""

    def label(self) -> str:
        """For people: ``vllm, gsm8k``, and whether decisions are replayed."""
        name = self.backend.label or " ".join(filter(None, (self.backend.name, self.options)))
        if self.is_replay:
            name += " (replayed)"
        return f"{name}, {self.place or self.workload.workload.name}"

    @property
    def is_replay(self) -> bool:
        """Whether decisions are replayed."""
        return self.backend.options.get("replay") is not None

    def beside(self, others: Sequence[Self], experiment: Mapping[str, Any]) -> Self:
        """With what tells it from others of the experiment, which is plain data."""
        workload, length = self.workload.workload, self.workload.max_new_tokens
        place = workload_name(workload, length, experiment)
        if any(one.model != self.model for one in others):
            place += f" on {self.model.label()}"
        same = [
            one.backend.options
            for one in others
            if (one.backend.name, one.is_replay) == (self.backend.name, self.is_replay)
        ]
        return replace(self, place=place, options=options_apart(self.backend.options, same))


@dataclass(frozen=True, slots=True)
class ProbedLoad:
    """What one load came to."""

    record: TrialRecord
    requests: RequestArrays
    was_stored: bool

    @property
    def is_late(self) -> bool:
        """Whether the client could not keep to the schedule, so that it says nothing."""
        return any(slug(reason) == LATE for reason in self.record.validity.reasons)

    @property
    def is_disturbed(self) -> bool:
        """Whether something else on the machine took part."""
        return any(slug(reason) in DISTURBANCES - {LATE} for reason in self.record.validity.reasons)

    def probe(self, asked: float, slo: Slo) -> Probe:
        """For the search, without its warm-up and its end; at the rate at which the rest came."""
        order = np.argsort(self.requests.scheduled_ns, kind="stable")
        met = latency.meets_slo(self.requests, slo)[order]
        times = self._filled(latency.e2e_s(self.requests))[order]
        waits = self._filled(latency.share_of_bounds(self.requests, slo))[order]
        due_s = self.requests.scheduled_ns[order] / 1e9
        return steady_probe(asked, due_s, times, met, waits)

    def _filled(self, sampled: Floats) -> Floats:
        """For all requests: who was never answered waited longer than anybody who was."""
        every = np.full(len(self.requests.sampled), sampled.max() if len(sampled) else 0.0)
        every[self.requests.sampled] = sampled
        return every

    def shares(self, slo: Slo) -> list[tuple[str, float]]:
        """The share of the answers that meets each bound by itself, and of the requests that were
        answered."""
        answered = self.requests.sampled
        bounds = {
            "TTFT": Slo(ttft_ms=slo.ttft_ms),
            "TPOT": Slo(tpot_ms=slo.tpot_ms),
            "end to end": Slo(e2e_ms=slo.e2e_ms),
        }
        met = [
            (name, latency.meets_slo(self.requests, bound)[answered])
            for name, bound in bounds.items()
            if bound != Slo()
        ]
        failed = [("requests that failed", float(answered.mean()))] * (not answered.all())
        return failed + [(name, float(own.mean()) if len(own) else 1.0) for name, own in met]


class RefusedProbeError(UserError):
    """Input that the engine refuses; the probe's record is stored."""


class FailedProbeError(UserError):
    """A probe did not end well, for a reason that is no bad input; its record is stored."""


class Prober:
    """Runs probes; a probe that is stored is not run again. To be used in a ``with`` block.

    Args:
        store: of the run folder.
        experiment: as the file has it: each probe draws requests and arrivals of its own.
        began: is told the key of each probe before it runs.
        events: is told how probes go on.
        told: as for `wiring.resolve`; what probes find odd about their rows is said once.
    """

    def __init__(
        self,
        store: Store,
        experiment: Experiment,
        began: Callable[[str], None],
        events: Callable[[SweepEvent], None] | None = None,
        told: set[str] | None = None,
    ) -> None:
        self._store, self._experiment, self._began = store, experiment, began
        self._told = set[str]() if told is None else told
        self._events, self._count = events, 0
        self._machine, self._pins = environment(), Pins()
        self._fingerprint = fingerprint(self._machine)
        self._invocation = Invocation()
        self._fleet = Fleet(open_session, store.path / "logs", wiring.weight_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._fleet.close(at_once=error is not None)

    def trial(
        self, system: ProbedSystem, load: Load, number: int, requests: int, repeat: int = 0
    ) -> Trial:
        """The probe of this number as a trial. Raises `UserError`."""
        # a checksum that the file has is of as many rows as the file asks for
        rows = replace(system.workload.workload, checksum=None)
        one = replace(
            self._experiment,
            models=(system.model,),
            backends=(system.backend,),
            workloads=(replace(system.workload, workload=rows),),
            loads=(load,),
            sweep=None,
            seed=self._experiment.seed + number,
            requests=requests,
            duration_s=None,
            repeats=1,
        )
        [trial] = wiring.resolve(one, told=self._told).trials()
        return replace(trial, repeat=repeat)

    def run(self, trial: Trial) -> ProbedLoad:
        """What the trial comes to; the engine stays loaded. Raises `RefusedProbeError` for input
        that the engine refuses, `FailedProbeError` for a trial that fails."""
        code = self._pins.of(trial)
        key = trial.key(self._fingerprint, code)
        self._began(key)
        if was_stored := self._store.has(key):
            record = self._store.read_stored(key).record
        else:
            write_code(self._store, {code: self._pins.parts(trial)})
            directory = wiring.model_folder(trial.model)
            write_prompts(self._store, [trial], directory)
            pinned = {"fingerprint": self._fingerprint, "code": code, **self._invocation.now()}
            # the limit is for what a file asks for: how many come how slowly is chosen here
            limit = self._experiment.time_limit_s + trial.requests / (trial.load.rate or math.inf)
            job = TrialJob(key, trial, {**self._machine, **pinned}, limit)
            teller = Teller(self._events, self._count, UNKNOWN, trial)
            self._count += 1
            teller.tell("started")
            record = self._fleet.run(job, [trial], teller.message, edited=self._pins.edited)
            record = write_record(self._store, record)
            teller.tell("finished", record=record, refused=self._fleet.refused)
        if record.status != "ok":
            kind = RefusedProbeError if self._fleet.refused else FailedProbeError
            raise kind(by_backend(trial.backend, record.error or record.status))
        stored = self._store.read_stored(key)
        file = self._store.open_file(key, stored.payload)
        return ProbedLoad(stored.record, from_file(file), was_stored)


def systems(experiment: Experiment, only: str | None) -> Sequence[ProbedSystem]:
    """Every backend of the experiment on every model and workload."""
    every = [
        ProbedSystem(backend, model, workload)
        for model in experiment.models
        for workload in experiment.workloads
        for backend in experiment.backends
    ]
    plain = to_json(experiment)
    return [one.beside(every, plain) for one in every if only in (None, one.backend.name)]


def most_requests(system: ProbedSystem, prompts: int, bundled_rows: int) -> tuple[int, str]:
    """Of a probe within these limits, and the limit that says so: a selection among bundled rows
    makes more of them than it draws."""
    rows = partial(rows_made, system.workload.workload)
    fit = bisect_right(range(1, prompts + 1), bundled_rows, key=rows)
    return fit, "prompts" if fit == prompts else "bundled_rows"


def described(system: ProbedSystem) -> dict[str, Any]:
    """A system as plain data."""
    return {
        "backend": system.backend.name,
        "options": dict(system.backend.options),
        "label": system.backend.label,
        "model": system.model.label(),
        "workload": system.workload.workload.name,
        "max_new_tokens": system.workload.max_new_tokens,
        "system": system.label(),
    }


def told_probe(probe: Probe, confidence: float) -> dict[str, float]:
    """As goodput.json has it."""
    low, high = share_interval(probe.met, confidence, probe.waits)
    return {
        "rate": probe.asked,
        "rate_came_about": probe.rate,
        "share": probe.share,
        "low": low,
        "high": high,
        "judged": len(probe.met),
    }
