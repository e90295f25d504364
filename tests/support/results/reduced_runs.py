"""Made-up runs for the gate, already cut down: times and answers of their requests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from results.compare.gate.identity import FIELDS
from results.compare.gate.reduced import CellName, ReducedRun, ReducedTrial
from results.metrics.arrays import Floats

IDENTITY: dict[str, Any] = {name: f"some {name}" for name in FIELDS}


def cell(backend: str = "fast", workload: str = "gsm8k", load: str = "closed c=8") -> CellName:
    return CellName("demo", workload, load, backend, "{}")


def reduced_trial(repeat: int, values: dict[str, Floats], **changes: Any) -> ReducedTrial:
    """A lossless trial that answered each request with its number."""
    count = len(next(iter(values.values())))
    base = ReducedTrial(
        cell=cell(),
        repeat=repeat,
        status="ok",
        doubt="",
        lossless=True,
        greedy=True,
        replayed=False,
        broken_promise=None,
        fingerprint="abc",
        identity=IDENTITY,
        ids=[f"r{place}" for place in range(count)],
        answers=np.arange(count) + 10,
        values=values,
        numbers={},
    )
    return dataclasses.replace(base, **changes)


def timed_run(where: str, times: Floats, **changes: Any) -> ReducedRun:
    """One cell whose `tpot_s` is `times`, (repeats, requests)."""
    trials = [reduced_trial(n, {"tpot_s": row}, **changes) for n, row in enumerate(times)]
    return ReducedRun(where, trials)


def joined(where: str, runs: Sequence[ReducedRun]) -> ReducedRun:
    return ReducedRun(where, [trial for run in runs for trial in run.trials])


def changed(run: ReducedRun, repeat: int = 0, **changes: Any) -> ReducedRun:
    """The run with other fields in one of its trials."""
    trials = [dataclasses.replace(t, **changes) if t.repeat == repeat else t for t in run.trials]
    return ReducedRun(run.where, trials)


def wandering(
    chance: np.random.Generator,
    repeats: int,
    requests: int = 30,
    wander: float = 0.05,
    slower: float = 0.0,
) -> Floats:
    """(repeats, requests) seconds: a request's own time, the machine's of the repeat, and noise."""
    own = np.random.default_rng(7).normal(0, 0.3, requests)
    machine = chance.normal(0, wander, (repeats, 1))
    noise = chance.normal(0, 0.02, (repeats, requests))
    times: Floats = 0.01 * (1 + slower) * np.exp(own + machine + noise)
    return times


def a_run(
    where: str = "BASE", *, slower: float = 0.0, seed: int = 0, repeats: int = 4
) -> ReducedRun:
    chance = np.random.default_rng(seed)
    return timed_run(where, wandering(chance, repeats, wander=0.005, slower=slower))


def everywhere(run: ReducedRun, **changes: Any) -> ReducedRun:
    trials = [dataclasses.replace(t, **changes) for t in run.trials]
    return ReducedRun(run.where, trials)
