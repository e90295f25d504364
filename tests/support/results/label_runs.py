"""A made-up run of backends that answer with labels: all layers, exits by entropy, and patience."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.core.nouns import Label, Load, Model, TrialRecord, Workload
from results import Run
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import run_of

REQUESTS, REPEATS, LAYERS = 24, 3, 8


class MadeUpClassifier(NamedTuple):
    """What it says took effect, the time of an answer, and the layers that answers ran, in turn."""

    name: str
    options: Mapping[str, Any]
    answer_ms: float
    layers_run: Sequence[int]
    ramps: Sequence[int] = ()


CLASSIFIERS = (
    MadeUpClassifier("classifier", {}, 8.0, [LAYERS]),
    MadeUpClassifier(
        "classifier-early-exit",
        {"measure": "entropy", "threshold": 0.2, "patience": None},
        4.0,
        [2, 2, 4, LAYERS],
        (2, 4),
    ),
    MadeUpClassifier(
        "tetris-classifier",
        {"measure": "patience", "threshold": None, "patience": 3},
        6.0,
        [4, LAYERS],
        (2, 4),
    ),
)


def label_run(
    folder: Path,
    loads: Sequence[Load] = (Load("closed", concurrency=1),),
    classifiers: Sequence[MadeUpClassifier] = CLASSIFIERS,
    slower: Sequence[float] = (1.0,) * REPEATS,
    day: int = 1,
) -> Run:
    """Write the run of a day, one request at a time, and read it. `slower`: by repeat, how many
    times as long an answer of all but the first takes."""
    started = f"2026-01-{day:02d}T00:00:00+00:00"
    records = [
        _record(
            one._replace(answer_ms=one.answer_ms * (times if place else 1)), load, repeat, started
        )
        for load in loads
        for repeat, times in enumerate(slower)
        for place, one in enumerate(classifiers)
    ]
    listed = [{"name": one.name, "options": dict(one.options)} for one in classifiers]
    return run_of(folder, *records, backends=listed, reference="classifier")


def _record(one: MadeUpClassifier, load: Load, repeat: int, started: str) -> TrialRecord:
    asked = trial(
        one.name,
        options=dict(one.options),
        model=Model("demo-sentiment"),
        workload=Workload("sentiment", checksum="sum-sentiment"),
        load=load,
        repeat=repeat,
        requests=REQUESTS,
    )
    made = []
    for place in range(REQUESTS):
        run, begin = one.layers_run[place % len(one.layers_run)], place * one.answer_ms
        answered = generation(
            f"r{place}",
            [begin + one.answer_ms],
            [0],
            scheduled_ms=begin,
            telemetry=_counts(one, run),
        )
        made.append(dataclasses.replace(answered, label=Label("positive", 0.9)))
    return record(asked, made, started_at=started)


def _counts(one: MadeUpClassifier, run: int) -> dict[str, float]:
    told = {
        "steps": 1.0, "batch_rows": 1.0, "layers_run": float(run), "layers_needed": float(run),
        "layers_skipped": float(LAYERS - run), "layers_total": float(LAYERS),
    }  # fmt: skip
    told |= {f"checks_layer_{ramp}": 1.0 for ramp in one.ramps if ramp <= run}
    if run < LAYERS:
        told |= {f"exits_layer_{run}": 1.0, f"own_exits_layer_{run}": 1.0}
    return told
