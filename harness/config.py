"""An experiment file (YAML) turned into trials. Unknown keys and wrong types are errors.

This module knows no backend and no workload: what exists is handed in as `Known`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

import yaml

from harness.core import (
    Load,
    LoadKind,
    Model,
    Sampling,
    Slo,
    Trial,
    UserError,
    Workload,
    canonical_json,
    to_json,
)
from harness.section import MAX_SEED, Section
from harness.strict_yaml import read_yaml

DTYPES = ("auto", "float32", "bfloat16", "float16")
MAX_NAME = 100
MAX_LIMIT_S = 1e9
"""Thirty years; the operating system's timers end at some hundreds."""
LOAD_KEYS: Mapping[str, frozenset[str]] = {
    "closed": frozenset({"concurrency"}),
    "poisson": frozenset({"rate"}),
    "constant": frozenset({"rate"}),
    "gamma": frozenset({"rate", "burstiness"}),
    "trace": frozenset({"trace"}),
}


@dataclass(frozen=True, slots=True)
class Known:
    """What an experiment file may name."""

    backends: Mapping[str, Mapping[str, bool]]
    """Backend name -> option name -> whether the option's own value is a list."""
    workloads: Mapping[str, int]
    """Workload name -> default max_new_tokens."""
    check_options: Callable[[str, Mapping[str, Any]], None]
    """Raises `UserError` when a backend cannot take these options."""
    check_workload: Callable[[Workload], object]
    """Raises `UserError` when a workload cannot take its options."""


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """One backend with one set of options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkloadChoice:
    """One workload with the answer length it allows."""

    workload: Workload
    max_new_tokens: int


@dataclass(frozen=True, slots=True)
class Experiment:
    """A checked experiment file with every default filled in."""

    name: str
    model: Model
    backends: tuple[BackendChoice, ...]
    workloads: tuple[WorkloadChoice, ...]
    loads: tuple[Load, ...]
    reference: str
    requests: int = 64
    slo: Slo = field(default_factory=Slo)
    sampling: Sampling = field(default_factory=Sampling)
    ignore_eos: bool = False
    repeats: int = 1
    seed: int = 0
    time_limit_s: float = 3600.0

    def to_yaml(self) -> str:
        """The resolved experiment as text, for the run folder."""
        return str(yaml.safe_dump(to_json(self), sort_keys=False, allow_unicode=True))

    def trials(self) -> list[Trial]:
        """Every cell of backend x workload x load x repeat."""
        cells = itertools.product(range(self.repeats), self.workloads, self.loads, self.backends)
        return [
            Trial(
                backend=backend.name,
                options=backend.options,
                model=self.model,
                workload=choice.workload,
                load=load,
                requests=self.requests,
                max_new_tokens=choice.max_new_tokens,
                sampling=self.sampling,
                ignore_eos=self.ignore_eos,
                slo=self.slo,
                seed=self.seed,
                repeat=repeat,
            )
            for repeat, choice, load, backend in cells
        ]


def load_experiment(path: Path, known: Known) -> Experiment:
    """Read and check an experiment file. Raises `UserError` naming the file and the key."""
    return parse_experiment(read_yaml(path), str(path), known)


def parse_experiment(data: Any, where: str, known: Known) -> Experiment:
    """Check the parsed content of an experiment file; `where` begins every error line."""
    top = Section(data, where)
    experiment = Experiment(
        name=_name(top),
        model=_model(top),
        backends=tuple(_backends(top, known)),
        workloads=tuple(_workloads(top, known)),
        loads=tuple(_loads(top)),
        reference="",
        requests=top.integer("requests", 64, least=1),
        slo=_slo(top),
        sampling=_sampling(top),
        ignore_eos=top.flag("ignore_eos", False),
        repeats=top.integer("repeats", 1, least=1),
        seed=top.integer("seed", 0, least=0, most=MAX_SEED),
        time_limit_s=top.number("time_limit_s", 3600.0, above=0.0, most=MAX_LIMIT_S),
    )
    names = list(dict.fromkeys(choice.name for choice in experiment.backends))
    reference = top.text("reference", names[0])
    if reference not in names:
        raise top.error("reference", f"'{reference}' is not among the backends", reference, names)
    top.finish()
    for key, choices in (
        ("backends", experiment.backends),
        ("workloads", experiment.workloads),
        ("load", experiment.loads),
    ):
        _refuse_doubles(top, key, choices)
    return dataclasses.replace(experiment, reference=reference)


def _name(top: Section) -> str:
    """The experiment's name, which names its folder too."""
    name = top.text("name")
    if name in (".", "..") or "/" in name or not name.isprintable() or len(name) > MAX_NAME:
        raise top.wrong("name", f"a folder's name, without '/', up to {MAX_NAME} characters", name)
    return name


def _refuse_doubles(top: Section, key: str, choices: Sequence[Any]) -> None:
    """The same trial twice is one trial: say so rather than run fewer than were asked for."""
    seen: set[str] = set()
    for choice in choices:
        content = canonical_json(to_json(choice))
        if content in seen:
            raise UserError(f"{top.label(key)}: stands twice: {content}; 'repeats' runs it again")
        seen.add(content)


def _model(top: Section) -> Model:
    dtype = top.text("dtype", "auto")
    if dtype not in DTYPES:
        raise top.error("dtype", f"unknown dtype '{dtype}'", dtype, DTYPES)
    value = top.take("model", None)
    if isinstance(value, Mapping):
        section = Section(value, top.where, "model")
        model = Model(section.text("name"), section.text("revision", "") or None, None, dtype)
        section.finish()
        return model
    if not isinstance(value, str) or not value:
        raise top.wrong("model", "a bundled name, a hub id or a local path", value)
    return Model(value, None, None, dtype)


def _backends(top: Section, known: Known) -> Iterator[BackendChoice]:
    for section in top.sections("backends"):
        name = section.text("name")
        if name not in known.backends:
            raise section.error("name", f"unknown backend '{name}'", name, known.backends)
        options = section.rest()
        for key in options:
            if key not in known.backends[name]:
                raise section.error(key, f"unknown option of '{name}'", key, known.backends[name])
        for key, value in options.items():
            section.plain(key, value)
        for chosen in _grid(options, known.backends[name], section):
            try:
                known.check_options(name, chosen)
            except UserError as error:
                raise UserError(f"{section.label()}: {error}") from None
            yield BackendChoice(name, chosen)


def _workloads(top: Section, known: Known) -> Iterator[WorkloadChoice]:
    common = top.take("max_new_tokens", None)
    if common is not None:
        common = top.as_integer("max_new_tokens", common, least=1)
    for section in top.sections("workloads"):
        name = section.text("name")
        if name not in known.workloads:
            raise section.error("name", f"unknown workload '{name}'", name, known.workloads)
        default = common if common is not None else known.workloads[name]
        limit = section.integer("max_new_tokens", default, least=1)
        source = section.text("source", "bundled")
        rows = section.take("rows", None)
        if rows is not None:
            rows = section.as_integer("rows", rows, least=1)
        workload = Workload(name, source, rows, section.rest())
        try:
            known.check_workload(workload)
        except UserError as error:
            raise UserError(f"{section.label()}: {error}") from None
        yield WorkloadChoice(workload, limit)


def _loads(top: Section) -> Iterator[Load]:
    for section in top.sections("load", name_key="kind"):
        kind = section.text("kind")
        if kind not in get_args(LoadKind):
            raise section.error("kind", f"unknown load '{kind}'", kind, get_args(LoadKind))
        options = section.rest()
        for key in options:
            if key not in LOAD_KEYS[kind]:
                raise section.error(key, f"unknown key of a '{kind}' load", key, LOAD_KEYS[kind])
        for key in LOAD_KEYS[kind] - options.keys() - {"burstiness"}:
            raise UserError(f"{section.label()}: a '{kind}' load needs the key '{key}'")
        for chosen in _grid(options, {}, section):
            yield _load(kind, chosen, section)


def _load(kind: str, chosen: Mapping[str, Any], section: Section) -> Load:
    checked: dict[str, Any] = {}
    for key, value in chosen.items():
        if key == "concurrency":
            checked[key] = section.as_integer(key, value, least=1)
        elif key == "trace":
            if not isinstance(value, str):
                raise section.wrong(key, "the path of a trace file", value)
            checked[key] = value
        else:
            checked[key] = section.as_number(key, value, above=0.0)
    if kind == "gamma":
        checked.setdefault("burstiness", 1.0)
    return Load(kind=cast(LoadKind, kind), **checked)


def _slo(top: Section) -> Slo:
    section = top.section("slo")
    bounds = {
        key: section.as_number(key, value, above=0.0)
        for key in ("ttft_ms", "tpot_ms", "e2e_ms")
        if (value := section.take(key, None)) is not None
    }
    section.finish()
    return Slo(**bounds)


def _sampling(top: Section) -> Sampling:
    section = top.section("sampling")
    sampling = Sampling(
        temperature=section.number("temperature", 0.0, least=0.0),
        top_p=section.number("top_p", 1.0, above=0.0, most=1.0),
        seed=section.integer("seed", 0, least=0, most=MAX_SEED),
    )
    section.finish()
    return sampling


def _grid(
    options: Mapping[str, Any], lists: Mapping[str, bool], section: Section
) -> Iterator[dict[str, Any]]:
    axes = []
    for key, value in options.items():
        own_list = lists.get(key, False)
        many = isinstance(value, list) and (not own_list or _is_list_of_lists(value))
        choices = value if many else [value]
        if not choices:
            raise UserError(f"{section.label(key)}: an empty list makes an empty grid")
        axes.append([(key, choice) for choice in choices])
    for combination in itertools.product(*axes):
        yield dict(combination)


def _is_list_of_lists(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(item, list) for item in value)
