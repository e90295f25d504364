"""An experiment file (YAML) turned into trials. Unknown keys and wrong types are errors.

This module knows no backend and no workload: what exists is handed in as `Known`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.canonical import later
from harness.core.errors import UserError
from harness.core.nouns import (
    QUALITY_MARGIN,
    Load,
    Model,
    Sampling,
    Slo,
    Trial,
    canonical_json,
    to_json,
)
from harness.experiment.choices import BackendChoice as BackendChoice
from harness.experiment.choices import Known as Known
from harness.experiment.choices import WorkloadChoice as WorkloadChoice
from harness.experiment.choices import take_backends, take_workloads
from harness.experiment.limits import Limits, take_limits
from harness.experiment.loads import LOAD_KEYS, RateSweep, take_loads
from harness.experiment.models import SHAPE_KEYS, take_models
from harness.experiment.published import Published, take_published
from harness.experiment.rates import take_rates
from harness.experiment.resolved import as_written
from harness.experiment.section import MAX_SEED, YamlSection
from harness.experiment.strict_yaml import read_yaml, yaml_text

MAX_NAME = 100
SLO_KEYS = ("ttft_ms", "tpot_ms", "e2e_ms")
SAMPLING_KEYS = ("temperature", "top_p")
LEAST_TEMPERATURE = 0.01
"""Above 0. What is less vLLM raises to this, or decodes greedily, so that backends would draw from
different distributions under one name."""
WORKLOAD_KEYS = (
    "source", "rows", "mix", "split", "article_limit", "max_article_tokens", "scorer",
    "recorded_lengths", "prompt_limit", "chat", "input_tokens", "output_tokens", "prefix_tokens",
    "prefixes",
)  # fmt: skip
MAX_LIMIT_S = 1e9
"""Thirty years; the operating system's timers end at some hundreds."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A checked experiment file with every default filled in."""

    name: str
    models: tuple[Model, ...]
    backends: tuple[BackendChoice, ...]
    workloads: tuple[WorkloadChoice, ...]
    loads: tuple[Load, ...]
    reference: str
    sweep: RateSweep | None = None
    """Rates that each system finds for itself, beside the `loads`."""
    requests: int = 64
    duration_s: float | None = None
    """Each load lasts so long, the `requests` prompts asked over and over; None: each once."""
    quality_requests: int | None = None
    """Prompts whose answers are judged, those of the loads among them; None: only those."""
    slo: Slo = field(default_factory=Slo)
    sampling: Sampling = field(default_factory=Sampling)
    ignore_eos: bool = False
    repeats: int = 1
    reload: bool | None = later()  # as `Trial` has it
    seed: int = 0
    quality_margin: float = QUALITY_MARGIN
    time_limit_s: float = 3600.0
    limits: Limits = field(default_factory=Limits)
    published: Published | None = None
    """A paper's table, which the report sets beside what was measured."""

    def to_yaml(self) -> str:
        """The resolved experiment as text, for the run folder."""
        data = to_json(self)
        models = data.pop("models")
        data = {"name": data.pop("name"), "model": models if len(models) > 1 else models[0]} | data
        return yaml_text(data)

    def trials(self) -> list[Trial]:
        """Every cell of backend x model x workload x load x repeat."""
        axes = (self.models, self.workloads, self.loads, self.backends)
        return [
            Trial(
                backend=backend.name,
                options=backend.options,
                model=model,
                workload=choice.workload,
                load=load,
                requests=self.requests,
                max_new_tokens=choice.max_new_tokens,
                sampling=self.sampling,
                ignore_eos=self.ignore_eos,
                slo=self.slo,
                seed=self.seed,
                repeat=repeat,
                duration_s=self.duration_s,
                reload=self.reload,
            )
            for repeat, model, choice, load, backend in itertools.product(
                range(self.repeats), *axes
            )
        ]


def load_experiment(path: Path, known: Known) -> Experiment:
    """Read and check an experiment file. Raises `UserError` naming the file and the key."""
    return parse_experiment(read_yaml(path), str(path), known)


def parse_experiment(data: Any, where: str, known: Known) -> Experiment:
    """Check the parsed content of an experiment file; `where` begins every error line."""
    top = YamlSection(as_written(data, where), where)
    limits = take_limits(top)
    rates = take_rates(top, known.check_rates)
    loads, sweep = take_loads(top, limits)
    experiment = Experiment(
        name=folder_name(top),
        models=take_models(top, limits),
        backends=tuple(take_backends(top, known, limits, rates)),
        workloads=tuple(take_workloads(top, known)),
        loads=loads,
        reference="",
        sweep=sweep,
        requests=top.integer("requests", 64, least=1),
        duration_s=_duration(top),
        quality_requests=_quality_requests(top),
        slo=_slo(top),
        sampling=_sampling(top),
        ignore_eos=top.flag("ignore_eos", False),
        repeats=top.integer("repeats", 1, least=1),
        reload=top.flag("reload", False) or None,
        seed=top.integer("seed", 0, least=0, most=MAX_SEED),
        quality_margin=top.number("quality_margin", QUALITY_MARGIN, least=0.0, most=1.0),
        time_limit_s=top.number("time_limit_s", 3600.0, above=0.0, most=MAX_LIMIT_S),
        limits=limits,
    )
    _refuse_long(top, experiment)
    _refuse_more_than_rows(top, experiment)
    published = take_published(top, known.metrics, experiment.backends, experiment.workloads)
    names = list(dict.fromkeys(choice.name for choice in experiment.backends))
    reference = top.text("reference", names[0])
    if reference not in names:
        raise top.error("reference", f"'{reference}' is not among the backends", reference, names)
    top.finish(_elsewhere(known))
    _refuse_too_much(top, experiment)
    for key, choices in (
        ("model", experiment.models),
        ("backends", [{"name": c.name, "options": c.options} for c in experiment.backends]),
        ("workloads", experiment.workloads),
        ("load", experiment.loads),
    ):
        _refuse_doubles(top, key, choices)
    return dataclasses.replace(experiment, reference=reference, published=published)


def _elsewhere(known: Known) -> dict[str, str]:
    """Where keys belong that people write at the top of a file."""
    options = [(key, name) for name, keys in known.backends.items() for key in keys or ()]
    return {
        **{key: f"it is an option of the backend '{name}'" for key, name in reversed(options)},
        "label": "it belongs to an entry of 'backends'",
        **dict.fromkeys(WORKLOAD_KEYS, "it belongs to an entry of 'workloads'"),
        **{key: "it belongs to an entry of 'load'" for keys in LOAD_KEYS.values() for key in keys},
        **dict.fromkeys(SAMPLING_KEYS, "it belongs under 'sampling'"),
        **dict.fromkeys(SLO_KEYS, "it belongs under 'slo'"),
        **{item.name: "it belongs under 'limits'" for item in dataclasses.fields(Limits)},
        **dict.fromkeys(SHAPE_KEYS, "it belongs under 'model'"),
    }


def _refuse_too_much(top: YamlSection, experiment: Experiment) -> None:
    engines = len(experiment.models) * len(experiment.backends)
    loads = len(experiment.loads) + (experiment.sweep.points if experiment.sweep else 0)
    trials = engines * experiment.repeats * len(experiment.workloads) * loads
    asked = max(experiment.requests, experiment.quality_requests or 0)
    prompts = asked * len(experiment.workloads)
    several = "models x " * (len(experiment.models) > 1) + "backends x options"
    axes = f"{several} x workloads x loads x repeats"
    experiment.limits.refuse(top.label(), "engines", several, engines)
    experiment.limits.refuse(top.label(), "trials", f"trials ({axes})", trials)
    experiment.limits.refuse(top.label(), "prompts", "prompts (requests x workloads)", prompts)


def folder_name(top: YamlSection) -> str:
    """The experiment's name, which names its folder too. Raises `UserError` where none can."""
    name = top.text("name")
    if name in (".", "..") or "/" in name or not name.isprintable() or len(name) > MAX_NAME:
        raise top.wrong("name", f"a folder's name, without '/', up to {MAX_NAME} characters", name)
    return name


def _refuse_doubles(top: YamlSection, key: str, choices: Sequence[Any]) -> None:
    """The same trial twice is one trial: say so rather than run fewer than were asked for."""
    seen: set[str] = set()
    for choice in choices:
        content = canonical_json(to_json(choice))
        if content in seen:
            raise UserError(f"{top.label(key)}: stands twice: {content}; 'repeats' runs it again")
        seen.add(content)


def _duration(top: YamlSection) -> float | None:
    value = top.take("duration_s", None)
    return None if value is None else top.as_number("duration_s", value, above=0.0)


def _quality_requests(top: YamlSection) -> int | None:
    value = top.take("quality_requests", None)
    return None if value is None else top.as_integer("quality_requests", value, least=1)


def _refuse_more_than_rows(top: YamlSection, experiment: Experiment) -> None:
    """Raise `UserError` for more prompts to be judged than a workload's `rows` allow."""
    asked, key = experiment.quality_requests, "quality_requests"
    if asked is None:
        return
    if not experiment.loads:
        raise UserError(f"{top.label(key)}: expected a load beside the sweep, whose quality it is")
    for choice in experiment.workloads:
        rows = choice.workload.rows
        if rows is not None and rows < asked:
            most = f"at most the {rows} 'rows' of workload {choice.workload.name}"
            raise top.wrong(key, most, asked)


def _refuse_long(top: YamlSection, experiment: Experiment) -> None:
    """A load that ends at its time limit measured nothing."""
    if experiment.duration_s is None:
        return
    if experiment.duration_s >= experiment.time_limit_s:
        below = f"a number below 'time_limit_s', which is {experiment.time_limit_s:g}"
        raise top.wrong("duration_s", below, experiment.duration_s)
    for load in experiment.loads:
        if load.redraw:
            raise UserError(
                f"{top.label('load')}: {load.label()}: with 'duration_s' each repeat would ask "
                "other requests; leave 'redraw' or 'duration_s' out"
            )
        asked = min((load.rate or 0.0) * experiment.duration_s, 1e15)
        what = f"requests of '{load.label()}' in {experiment.duration_s:g} s"
        experiment.limits.refuse(top.label("duration_s"), "prompts", what, round(asked))


def _slo(top: YamlSection) -> Slo:
    section = top.section("slo")
    bounds = {
        key: section.as_number(key, value, above=0.0)
        for key in SLO_KEYS
        if (value := section.take(key, None)) is not None
    }
    section.finish()
    return Slo(**bounds)


def _sampling(top: YamlSection) -> Sampling:
    section = top.section("sampling")
    sampling = Sampling(
        temperature=_temperature(section),
        top_p=section.number("top_p", 1.0, above=0.0, most=1.0),
        seed=section.integer("seed", 0, least=0, most=MAX_SEED),
    )
    section.finish()
    return sampling


def _temperature(section: YamlSection) -> float:
    value = section.number("temperature", 0.0, least=0.0)
    if 0 < value < LEAST_TEMPERATURE:
        raise section.wrong("temperature", f"0 (greedy) or at least {LEAST_TEMPERATURE}", value)
    return value
