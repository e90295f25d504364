"""What an experiment names: backends with their options, workloads with theirs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.core.errors import UserError
from harness.core.nouns import Workload
from harness.experiment.grid import expand
from harness.experiment.limits import Limits
from harness.experiment.rates import with_rates
from harness.experiment.section import YamlSection

MAX_LABEL = 60
LABEL = f"a text of up to {MAX_LABEL} printable characters"
FILLED_IN = "in a grid {OPTION} stands for an option's value, as in 'mine {threshold}'"


@dataclass(frozen=True, slots=True)
class Known:
    """What an experiment file may name."""

    backends: Mapping[str, Mapping[str, bool] | None]
    """Backend name -> option name -> whether the option's own value is a list."""
    workloads: Mapping[str, int]
    """Workload name -> default max_new_tokens."""
    check_options: Callable[[str, Mapping[str, Any]], None]
    """Raises `UserError` when a backend cannot take these options."""
    check_workload: Callable[[Workload], object]
    """Raises `UserError` when a workload cannot take its options."""
    check_rates: Callable[[Mapping[str, Any], str], object]
    """Raises `UserError`, which begins with the text, for rates that cannot be replayed."""
    metrics: Collection[str] = ()
    """Names of what a paper may have published."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Workload name -> where its rows come from when the file does not say; "bundled" for others,
    and empty where the file has to."""


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """One backend with one set of options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str | None = None
    """What the user calls it, in tables and on the page; None: name and options tell."""


@dataclass(frozen=True, slots=True)
class WorkloadChoice:
    """One workload with the answer length it allows."""

    workload: Workload
    max_new_tokens: int


def take_backends(
    top: YamlSection, known: Known, limits: Limits, rates: Mapping[str, Any]
) -> Iterator[BackendChoice]:
    """The backends of an experiment file, their options as grids, taken out. Raises `UserError`."""
    count, labels = 0, set[str]()
    for section in top.sections("backends"):
        name = section.text("name")
        if name not in known.backends:
            raise section.error("name", f"unknown backend '{name}'", name, known.backends)
        label = _label(section)
        options, lists = section.rest(), known.backends[name]
        if lists is None:
            known.check_options(name, {})  # says why it cannot be used
            lists = {}
        for key in options:
            if key not in lists:
                raise section.error(key, f"unknown option of '{name}'", key, lists)
        for key, value in options.items():
            section.plain(key, value)
        for cell in expand(options, lists, section, limits, "engines"):
            chosen = with_rates(cell, rates, section)
            count += 1
            limits.refuse(section.label(), "engines", "backends x options", count)
            try:
                known.check_options(name, chosen)
            except UserError as error:
                raise UserError(f"{section.label()}: {error}") from None
            own = _filled(label, chosen, section)
            if own is not None and own in labels:
                raise UserError(f"{section.label('label')}: '{own}' stands twice; {FILLED_IN}")
            labels.add(own or "")
            yield BackendChoice(name, chosen, own)


def _label(section: YamlSection) -> str | None:
    label = section.optional_text("label")
    if label is not None and not is_label(label):
        raise section.wrong("label", LABEL, label)
    return label


def is_label(text: str) -> bool:
    """Whether tables and pages have the room for it, on a line."""
    return len(text) <= MAX_LABEL and text.isprintable()


def _filled(label: str | None, options: Mapping[str, Any], section: YamlSection) -> str | None:
    """A label with the values of options in the place of their names in braces."""
    if label is None:
        return None

    def value(match: re.Match[str]) -> str:
        if match[1] not in options:
            what = f"'{match[1]}' is no option that this entry sets"
            raise section.error("label", what, match[1], options)
        return str(options[match[1]])

    return re.sub(r"\{(\w+)\}", value, label)


def take_workloads(top: YamlSection, known: Known) -> Iterator[WorkloadChoice]:
    """The workloads of an experiment file, taken out. Raises `UserError`."""
    common = top.take("max_new_tokens", None)
    if common is not None:
        common = top.as_integer("max_new_tokens", common, least=1)
    for section in top.sections("workloads"):
        name = section.text("name")
        if name not in known.workloads:
            raise section.error("name", f"unknown workload '{name}'", name, known.workloads)
        default = common if common is not None else known.workloads[name]
        limit = section.integer("max_new_tokens", default, least=1)
        source = section.text("source", known.sources.get(name, "bundled"))
        rows = section.take("rows", None)
        if rows is not None:
            rows = section.as_integer("rows", rows, least=1)
        checksum = section.optional_text("checksum")
        workload = Workload(name, source, rows, section.rest(), checksum)
        try:
            known.check_workload(workload)
        except UserError as error:
            raise UserError(f"{section.label()}: {error}") from None
        yield WorkloadChoice(workload, limit)
