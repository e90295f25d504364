"""Joins the folders: what an experiment names becomes pinned content and prompts."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import backends
import workloads
from backends.checkpoints import models
from backends.checkpoints.shapes.folder import outline
from backends.classifiers.inputs import check_inputs
from harness.cli.asked.memory import refuse_too_large
from harness.core.errors import UserError, runs_elsewhere
from harness.core.files import MIB
from harness.core.nouns import Load, Model, Trial, Workload, canonical_json
from harness.core.processes.processor import multiplies_bfloat16
from harness.experiment.choices import BackendChoice, WorkloadChoice
from harness.experiment.config import Experiment, Known
from harness.measure.machine import gpu
from harness.measure.sweep import by_backend
from results.registry import METRICS
from results.traces import rates
from workloads import arrivals, datasets, prompts
from workloads.measured import (
    cut_answers,
    load_prompts,
    load_rows,
    rows_checksum,
    times_checksum,
)
from workloads.readers import Budget

Engine = tuple[str, Model, Mapping[str, Any]]
"""A backend's name, its model and its options."""


def known() -> Known:
    """What an experiment file may name, for `harness.experiment.config`."""
    return Known(
        backends={name: _lists(name) for name in backends.BACKENDS},
        workloads={name: spec.max_new_tokens for name, spec in workloads.measurable().items()},
        check_options=backends.check_options,
        check_workload=datasets.row_options,
        check_rates=rates.parse_rates,
        metrics=[key for metric in METRICS for key in metric.keys],
        sources={name: spec.default_source for name, spec in workloads.measurable().items()},
    )


def _lists(name: str) -> dict[str, bool] | None:
    """By option whether its value is a list. None for a backend that cannot be imported, which
    concerns the experiments that name it alone."""
    try:
        options = backends.load_class(name).OPTIONS
    except UserError:
        return None
    return {key: option.type is list for key, option in options.items()}


def resolve(
    experiment: Experiment, run: Sequence[Trial] | None = None, told: set[str] | None = None
) -> Experiment:
    """Pin what the experiment names by content: checksums of model and rows, a concrete dtype.
    `run`: of its trials those that will run, whose backends have to fit; None: all of them.
    `told`: what was said before of its rows and times, whatever the numbers in it; takes up what
    is said now.

    Also makes every load's arrival times once, so that a bad trace or rate is found before an
    engine is loaded. Raises `UserError` for a model or a data file that cannot be used, for one
    that is not what a checksum in the file pins, and for more than the experiment's limits.
    """
    runs_model = any(backends.load_class(choice.name).needs_model for choice in experiment.backends)
    engines = [
        choice
        for choice in experiment.backends
        if run is None or any((t.backend, t.options) == (choice.name, choice.options) for t in run)
    ]
    found = [_pinned_model(m, experiment, engines, runs_model) for m in experiment.models]
    asked = max(experiment.requests, experiment.quality_requests or 0)
    made = sum(datasets.rows_made(c.workload, asked) for c in experiment.workloads)
    experiment.limits.refuse(experiment.name, "bundled_rows", "bundled rows to be made", made)
    budget = Budget(experiment.limits.data_mib * MIB, experiment.limits.data_rows)
    loads = tuple(_pinned_load(load, experiment, budget) for load in experiment.loads)
    choices = tuple(
        replace(choice, workload=_pinned(choice, experiment, found, budget))
        for choice in experiment.workloads
    )
    words = {remark: re.sub(r"[\d,]+", "", remark) for remark in budget.remarks}
    for remark in (one for one in words if words[one] not in (told or ())):
        print(f"warning: {remark}", file=sys.stderr)
    if told is not None:
        told.update(words.values())
    pinned = tuple(model for model, _ in found)
    return replace(experiment, models=pinned, workloads=choices, loads=loads)


def _pinned_model(
    model: Model, experiment: Experiment, run: Sequence[BackendChoice], weights: bool
) -> tuple[Model, Path]:
    """The model with its checksum and a concrete dtype, and its folder."""
    model = replace(model, dtype=preferred_dtype() if model.dtype == "auto" else model.dtype)
    loading = [(c.name, c.options) for c in run if backends.load_class(c.name).needs_model]
    if model.shape and loading:
        refuse_too_large(model, loading)
        _refuse_unfit(model, run)
    directory = models.resolve(model, weights=weights, cache_gib=experiment.limits.cache_gib)
    checksum = models.checksum(directory)
    _refuse_change(f"model '{model.label()}'", model.checksum, checksum)
    return replace(model, checksum=checksum), directory


def _refuse_unfit(model: Model, run: Sequence[BackendChoice]) -> None:
    """Raise `UserError` for a shape that a backend does not take, before its weights are made."""
    with outline(model) as directory:
        models.load_tokenizer(directory)  # reads the configuration, as the engines will
        engines = [(choice.name, model, choice.options) for choice in run]
        _answers(engines, functools.partial(backends.warnings_on, directory))


def _pinned_load(load: Load, experiment: Experiment, budget: Budget) -> Load:
    if load.kind != "trace":
        arrivals.arrival_times(load, 1, experiment.seed)  # refuses rates that cannot be
        return load
    seed, duration_s = experiment.seed, experiment.duration_s
    if duration_s is not None:
        times = arrivals.times_within(load, duration_s, seed, budget)
    else:
        times = arrivals.arrival_times(load, experiment.requests, seed, budget)
    found = times_checksum(times)
    _refuse_change(f"trace '{load.trace}'", load.checksum, found)
    return replace(load, checksum=found)


def _refuse_change(what: str, pinned: str | None, found: str) -> None:
    if pinned not in (None, found):
        raise UserError(
            f"{what}: its content has checksum {found[:12]}, not {str(pinned)[:12]} as the "
            "experiment pins it; leave 'checksum' out to take what is there"
        )


def warnings(trials: Sequence[Trial]) -> list[str]:
    """What the user probably did not mean, each told once. Raises `UserError` for options that a
    backend cannot run on this model, before anything runs."""
    engines = {trial.engine_key(): trial for trial in trials}.values()
    found = [] if runs_elsewhere() else gpu.doubts()
    found += _answers([(e.backend, e.model, e.options) for e in engines], backends.warnings)
    for name in dict.fromkeys(trial.workload.name for trial in trials):
        own = {t.engine_key(): t for t in trials if t.workload.name == name}.values()
        asked = functools.partial(_check_workload, name)
        _answers([(e.backend, e.model, e.options) for e in own], asked)
    check_inputs(trials)
    return found


def _check_workload(workload: str, backend: str, _: Model, options: Mapping[str, Any]) -> list[str]:
    backends.check_workload(backend, workload, options)
    return []


def _answers(
    engines: Sequence[Engine], ask: Callable[[str, Model, Mapping[str, Any]], list[str]]
) -> list[str]:
    """What each is answered with, each line once. A `UserError` names the backend, and where it
    stands with several options, which of them."""
    found: list[str] = []
    for name, model, options in engines:
        try:
            found += ask(name, model, options)
        except UserError as error:
            line = by_backend(name, error)
            if not options or sum(other == name for other, _, _ in engines) == 1:
                raise UserError(line) from None
            raise UserError(f"{line} (with {canonical_json(options)})") from None
    return list(dict.fromkeys(found))


def preferred_dtype() -> str:
    """bfloat16 where this machine computes in it, else float32: what ``dtype: auto`` means."""
    if gpu.devices():
        return "bfloat16" if gpu.compute_capability() >= (8, 0) else "float32"
    return "bfloat16" if multiplies_bfloat16() else "float32"


def _pinned(
    choice: WorkloadChoice,
    experiment: Experiment,
    found: Sequence[tuple[Model, Path]],
    budget: Budget,
) -> Workload:
    """The workload with the checksum of its rows, which are the same for all models."""
    workload, checksums = choice.workload, dict[str, Model]()
    needs_tokenizer = datasets.row_options(workload).counts_tokens
    tokenizers = {_tokenizer_bytes(own): (model, own) for model, own in reversed(found)}
    for model, directory in tokenizers.values() if needs_tokenizer else found[:1]:
        tokenizer = models.prompt_tokenizer(directory) if needs_tokenizer else None
        rows = load_rows(workload, experiment.seed, experiment.requests, tokenizer, budget)
        checksums.setdefault(rows_checksum(workload, rows), model)
    if len(checksums) > 1:
        names = " and ".join(model.label() for model in [*checksums.values()][:2])
        raise UserError(
            f"workload {workload.name}: its option counts tokens, and the tokenizers of {names} "
            "give other rows; run these models apart"
        )
    (checksum,) = checksums
    _refuse_change(f"workload {workload.name}", workload.checksum, checksum)
    recorded = workload.options.get("recorded_lengths", False)
    tokenizer = models.load_tokenizer(directory) if recorded else None
    if cut := cut_answers(rows, choice.max_new_tokens, tokenizer):
        budget.remarks.append(f"workload {workload.name}: {cut}")
    return replace(workload, checksum=checksum)


def weight_bytes(trial: Trial) -> int:
    """Bytes of the weights that a trial's engine holds, for what fits into memory beside it; 0
    where it loads none."""
    return _weight_bytes(trial.model) if backends.load_class(trial.backend).needs_model else 0


@functools.cache
def _weight_bytes(model: Model) -> int:
    stored = 0
    with contextlib.suppress(UserError, OSError):  # the engine's start will say it
        stored = sum(path.stat().st_size for path in models.resolve(model).glob("*.safetensors"))
    return stored * (2 if model.shape and model.dtype == "float32" else 1)


def _tokenizer_bytes(directory: Path) -> bytes:
    with contextlib.suppress(OSError):
        return (directory / "tokenizer.json").read_bytes()
    return b""


def model_folder(model: Model) -> Path:
    """The folder of a model that `resolve` has checked; configuration and tokenizer only."""
    return models.resolve(model, weights=False)


def check_tokenizer(model: Model) -> None:
    """Raise `UserError` for a tokenizer or a chat template that cannot make prompts."""
    models.load_tokenizer(model_folder(model))


def prompt_rows(
    trials: Sequence[Trial], directory: Path
) -> Iterator[tuple[list[dict[str, Any]], str]]:
    """What the store keeps of each workload, with the workload's checksum.

    A row has the prompt's text as the model reads it, its length in tokens, and the reference
    answer.
    """
    tokenizer = models.prompt_tokenizer(directory)
    for trial in {trial.workload.checksum: trial for trial in trials}.values():
        name = trial.workload.name
        rows = [
            {
                "request_id": prompt.request_id,
                "prompt_text": prompt.text,
                "prompt_tokens": len(prompt.token_ids),
                "answer": prompts.answer_if_any(name, prompt.row.data),
            }
            for prompt in load_prompts(trial, tokenizer)
        ]
        yield rows, trial.workload.checksum or ""


def backend_catalogue() -> list[dict[str, Any]]:
    """What ``decodebench list backends`` shows."""
    return [_described(name) for name in sorted(backends.BACKENDS)]


def _described(name: str) -> dict[str, Any]:
    try:
        options = backends.load_class(name).OPTIONS
    except UserError as error:
        return {"name": name, "options": {}, "error": str(error)}
    return {
        "name": name,
        "text": backends.about(name),
        "options": {
            key: {
                "type": option.type.__name__,
                "default": option.default,
                "help": option.help,
                "choices": list(option.choices),
                "words": list(option.words),
                "minimum": option.minimum,
                "maximum": option.maximum,
                "mapping": option.mapping,
            }
            for key, option in options.items()
        },
    }
