"""Runs on consecutive days, of a machine and work that are the same unless told otherwise."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.core.nouns import Load, Validity, Workload
from tests.support.results.make_trials import VALID, generation, record, trial
from tests.support.results.stored_runs import run_of

BACKENDS = {"vllm": 10.0, "autoregressive": 20.0}
"""Name -> milliseconds of a token."""
BUSY = Validity(valid=False, reasons=("machine-noisy: busy",))
Slower = Callable[[int, str], float]


def write_runs(
    folder: Path,
    count: int,
    slower: Slower = lambda number, backend: 1.0,
    *,
    noise: float = 0.01,
    environment: Callable[[int], dict[str, Any]] = lambda number: {},
    doubted: Callable[[int], bool] = lambda number: False,
    seed: int = 3,
) -> Path:
    """`count` runs below `folder`, the later the higher their number, in no order of names.

    Args:
        slower: by what factor the tokens of a run take longer.
        noise: relative standard deviation of it.
        environment: what a run's differs in.
        doubted: whether a run's trials are not sound.
    """
    rng = random.Random(seed)
    for number in range(count):
        records = []
        for name, base in BACKENDS.items():
            step = base * slower(number, name) * (1 + rng.gauss(0, noise))
            found = [generation(f"r{i}", [step * k for k in range(2, 12)]) for i in range(24)]
            one = record(
                trial(
                    name,
                    workload=Workload("gsm8k", checksum="sum"),
                    load=Load("closed", concurrency=8),
                ),
                found,
            )
            packages = {"vllm": "0.31" if number < count // 2 else "0.32"}
            told = {**one.environment, "commit": f"c{number:03d}", "packages": packages}
            records.append(
                dataclasses.replace(
                    one,
                    started_at=f"2026-{1 + number // 28:02d}-{1 + number % 28:02d}T10:00:00+00:00",
                    environment={**told, **environment(number)},
                    validity=BUSY if doubted(number) else VALID,
                )
            )
        listed = [{"name": name, "options": {}} for name in BACKENDS]
        run_of(folder / f"run-{-number % 7}-{number}", *records, backends=listed, reference="vllm")
    return folder
