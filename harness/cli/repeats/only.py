"""Which trials ``--only`` names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from harness.core.errors import UserError, nearest
from harness.core.nouns import Load, Trial
from harness.experiment.config import Experiment

ANY_LOAD = Load("closed", concurrency=1)
"""Of an experiment that only sweeps, to check what its trials will be."""
Wanted = Callable[[Trial], bool]


def named_by(only: str | None, experiment: Experiment) -> Wanted:
    """Whether a trial is of the backend, or of the one with that label, that `only` names; of all
    where it names none. Raises `UserError` for another name."""
    if only is None:
        return lambda trial: True
    names = {choice.name for choice in experiment.backends}
    if only in names:
        return lambda trial: trial.backend == only
    labelled = {choice.label: choice for choice in experiment.backends if choice.label}
    if only not in labelled:
        raise UserError(f"--only: no backend '{only}'; {nearest(only, [*names, *labelled])}")
    one = labelled[only]
    if experiment.sweep is not None:
        raise UserError(f"--only: beside a sweep expected the backend '{one.name}', not a label")
    return lambda trial: trial.backend == one.name and trial.options == one.options


def one_load(experiment: Experiment, wanted: Wanted) -> list[Trial]:
    """What is asked for under one load, also of an experiment that only sweeps."""
    trials = replace(experiment, loads=(ANY_LOAD,), repeats=1).trials()
    return [trial for trial in trials if wanted(trial)]
