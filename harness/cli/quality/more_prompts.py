"""The trials behind ``quality_requests``: prompts that no timed trial asks, each answered once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import backends
from backends.checkpoints import models
from harness.cli import wiring
from harness.cli.repeats.only import Wanted
from harness.core.names import QUALITY
from harness.core.nouns import Load, Trial, Workload
from harness.experiment.choices import WorkloadChoice
from harness.experiment.config import Experiment
from workloads import datasets, scoring
from workloads.measured import load_rows, more_rows, rows_checksum

TOGETHER = 8
"""Requests in flight, at the least, of answers that do not depend on one another: engines answer
many at once in less time than one after the other."""


def quality_trials(experiment: Experiment, wanted: Wanted = lambda _: True) -> list[Trial]:
    """One trial for each backend, model and workload of a resolved experiment with
    ``quality_requests``, of the prompts beyond `requests`, where it is `wanted`. None of workloads
    without scores, of random weights and of replayed decisions.

    Of what answers depend on each other in a batch so many are in flight as in the experiment's
    smallest load, since more of them would flatter it. Says on stderr which workloads have no
    scores or fewer prompts than asked for. Raises `UserError` for data that cannot be used.
    """
    asked = experiment.quality_requests
    if asked is not None and asked <= experiment.requests:
        _warn(f"quality_requests: {asked}: the loads ask {experiment.requests} prompts anyway")
    if asked is None or asked <= experiment.requests:
        return []
    return [
        replace(trial, workload=workload, load=_load(trial, experiment.loads), requests=count)
        for choice in experiment.workloads
        for workload, count in _more(choice, experiment, asked)
        for trial in _once(experiment, choice)
        if wanted(trial)
    ]


def _once(experiment: Experiment, choice: WorkloadChoice) -> list[Trial]:
    """Each engine whose answers to a workload mean something, once."""
    alone = replace(
        experiment, workloads=(choice,), loads=experiment.loads[:1], repeats=1, duration_s=None
    )
    return [trial for trial in alone.trials() if not (trial.model.shape or trial.replays)]


def _load(trial: Trial, loads: Sequence[Load]) -> Load:
    asked = [load.concurrency for load in loads if load.concurrency is not None]
    if backends.batch_decides(trial.backend, trial.options):
        return Load(QUALITY, concurrency=min(asked, default=1))
    return Load(QUALITY, concurrency=max([TOGETHER, *asked]))


def _more(
    choice: WorkloadChoice, experiment: Experiment, asked: int
) -> Iterator[tuple[Workload, int]]:
    """The workload with all prompts that are judged, and how many of them no load asks; nothing
    where that is none."""
    workload, seed = choice.workload, experiment.seed
    tokenizer = _tokenizer(workload, experiment)
    drawn = load_rows(replace(workload, rows=None), seed, asked, tokenizer)
    every = len({row.id for row in drawn})
    if not any(scoring.is_scored(workload.name, row.data) for row in drawn):
        _warn(f"workload {workload.name}: its answers have no score; no more are asked")
        return
    if every < asked:
        _warn(f"workload {workload.name}: has {every} of the {asked} prompts of 'quality_requests'")
    if every > experiment.requests:
        every_row, count = replace(workload, rows=every), every - experiment.requests
        rows = more_rows(every_row, seed, count, tokenizer)
        yield replace(every_row, checksum=rows_checksum(every_row, rows)), count


def _tokenizer(workload: Workload, experiment: Experiment) -> Any:
    """The first model's, where an option counts tokens: others draw the same rows by it."""
    if not datasets.row_options(workload).counts_tokens:
        return None
    return models.prompt_tokenizer(wiring.model_folder(experiment.models[0]))


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)
