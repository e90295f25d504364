"""Which trials ``--only`` names."""

from __future__ import annotations

from collections.abc import Callable

from harness.core.errors import UserError, nearest
from harness.core.nouns import Trial
from harness.experiment.config import Experiment

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
