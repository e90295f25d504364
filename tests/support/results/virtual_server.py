"""A server with a queue in virtual time, for searches of rates."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import numpy as np

from benchmarks.soundness.goodput_search import SERVICE_S, sojourn
from harness.cli.goodput.probing import FailedProbeError, ProbedLoad, ProbedSystem, Prober
from harness.cli.goodput.searching import SearchedGoodput, SearchSettings, SystemSearch
from harness.core.nouns import Load, Model, Slo, TrialRecord, Validity, Workload
from harness.experiment.choices import BackendChoice, WorkloadChoice
from results.metrics.arrays import Floats, from_record
from tests.support.results.make_trials import generation, record, trial

SYSTEM = ProbedSystem(BackendChoice("made up"), Model("demo"), WorkloadChoice(Workload("gsm8k"), 8))
SETTINGS = SearchSettings(
    Slo(e2e_ms=4e3 * SERVICE_S), share=0.95, confidence=0.95, tolerance=0.1, requests=2000, most=12,
    most_bundled=20_000,
)  # fmt: skip


class VirtualServer:
    """One server with a queue; `right` of its answers are, from `late_from` on the client is late,
    and its probe number `dies_at` fails, the idle one being number 0."""

    def __init__(
        self, right: float = 1.0, late_from: float = np.inf, dies_at: int | None = None
    ) -> None:
        self.asked: list[Load] = []
        self._right, self._late_from, self._dies_at = right, late_from, dies_at

    def trial(self, system: ProbedSystem, load: Load, number: int, requests: int) -> Any:
        return load, number, requests

    def run(self, asked: Any) -> ProbedLoad:
        load, number, requests = asked
        self.asked.append(load)
        if len(self.asked) - 1 == self._dies_at:
            raise FailedProbeError("made up: died")
        rng = np.random.default_rng(number)
        due, times = self.served(load.rate, requests, rng)
        late = load.rate is not None and load.rate >= self._late_from
        reasons = ("client-late: p99 of the lag is 9 ms",) * late
        return ProbedLoad(self._record(due, times, rng, reasons), self._arrays, was_stored=False)

    def served(
        self, rate: float | None, count: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """When so many requests come, and how long each takes; None: one at a time. Seconds."""
        if rate is None:
            return np.linspace(0, (count - 1) * SERVICE_S, count), np.full(count, SERVICE_S)
        return sojourn(rate, count, rng)

    def _record(
        self, due: Floats, times: Floats, rng: np.random.Generator, reasons: tuple[str, ...]
    ) -> TrialRecord:
        made = [
            generation(f"r{n}", [1e3 * (at + took)], scheduled_ms=1e3 * at)
            for n, (at, took) in enumerate(zip(due, times, strict=True))
        ]
        scores = {
            one.request_id: {"exact_match": float(rng.random() < self._right)} for one in made
        }
        verdict = Validity(not reasons, reasons)
        found = record(trial("made up"), made, scores=scores, validity=verdict)
        self._arrays = from_record(found)
        return found


def searched(server: VirtualServer, **changes: Any) -> SearchedGoodput:
    settings = dataclasses.replace(SETTINGS, **changes)
    return SystemSearch(cast(Prober, server), SYSTEM, settings).searched()
