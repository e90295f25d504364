"""How much of an experiment its run folder lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from harness.core.nouns import Load, Model, Sampling, Slo, Trial, Workload

if TYPE_CHECKING:
    from results import Run


def not_run(run: Run) -> tuple[int, int]:
    """How many of the experiment's trials have no record, and how many it has; (0, 0) where nobody
    can tell. Trials of other settings fill no place. What is compared is of one machine, and where
    several have run it, the last one counts; machines may share the experiment otherwise."""
    try:
        asked = {trial.key(""): _compared(trial) for trial in _asked(run.experiment)}
    except (KeyError, TypeError, ValueError, AttributeError):
        return 0, 0
    done: dict[tuple[str, str], set[str]] = {}
    last: dict[str, tuple[str, str]] = {}
    for stored in sorted(run.stored, key=lambda one: one.record.started_at):
        key = stored.record.trial.key("")
        if key in asked:
            place = asked[key], str(stored.record.environment.get("fingerprint"))
            done.setdefault(place, set()).add(key)
            last[asked[key]] = place
    return len(asked) - sum(len(done[place]) for place in last.values()), len(asked)


def _asked(experiment: Mapping[str, Any]) -> Iterator[Trial]:
    """As `harness.experiment.config` lists them; what an older file does not tell is as usual."""
    models = experiment["model"]
    axes = experiment["workloads"], experiment["loads"], experiment["backends"]
    rest = ("ignore_eos", "seed", "duration_s", "reload")
    settings = {name: experiment[name] for name in rest if name in experiment}
    for repeat, model, choice, load, backend in product(
        range(experiment["repeats"]), models if isinstance(models, list) else [models], *axes
    ):
        yield Trial(
            backend=backend["name"],
            options=backend["options"],
            model=Model(**model),
            workload=Workload(**choice["workload"]),
            load=Load(**load),
            requests=experiment["requests"],
            max_new_tokens=choice["max_new_tokens"],
            sampling=Sampling(**experiment.get("sampling", {})),
            slo=Slo(**experiment.get("slo", {})),
            repeat=repeat,
            **settings,
        )


def _compared(trial: Trial) -> str:
    """Equal for trials that one machine runs, to be compared."""
    return replace(trial, backend="", options={}, repeat=0).key("")
