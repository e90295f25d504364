"""Numbers that a paper reports, kept beside the trials that repeat its table: ``published``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.experiment.section import YamlSection

if TYPE_CHECKING:
    from harness.experiment.config import BackendChoice, WorkloadChoice


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """What the paper has for one backend with these options, whatever its others are."""

    backend: str
    values: Mapping[str, Sequence[float | None]]
    """By workload, a number for each setting; None where the paper has none."""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Published:
    """A table of a paper: one metric, in one or several settings."""

    source: str
    """Paper and table."""
    metric: str
    settings: Sequence[str]
    """What each number of a row was measured on, say models."""
    note: str
    """How it was measured there: why its numbers may differ from those of a run."""
    rows: Sequence[PublishedRow]


def take_published(
    top: YamlSection,
    metrics: Collection[str],
    backends: Sequence[BackendChoice],
    workloads: Sequence[WorkloadChoice],
) -> Published | None:
    """The table under ``published``. Raises `UserError`, for rows that no backend of the
    experiment matches too."""
    value = top.take("published", None)
    if value is None:
        return None
    section = YamlSection(value, top.where, "published")
    source, note = section.text("source"), section.text("note")
    metric = section.text("metric")
    if metric not in metrics:
        raise section.error("metric", f"unknown metric '{metric}'", metric, metrics)
    settings = section.take("settings")
    if not _texts(settings):
        raise section.wrong("settings", "a list of texts, each once", settings)
    named = list(dict.fromkeys(choice.workload.name for choice in workloads))
    rows = [_row(row, settings, backends, named) for row in section.sections("rows", "backend")]
    section.finish()
    return Published(source, metric, settings, note, rows)


def _texts(value: Any) -> bool:
    whole = isinstance(value, list) and all(isinstance(item, str) and item for item in value)
    return whole and 0 < len(value) == len(set(value))


def _row(
    row: YamlSection, settings: Sequence[str], backends: Sequence[BackendChoice], named: list[str]
) -> PublishedRow:
    backend = row.text("backend")
    options = row.section("options").rest()
    own = [choice.options for choice in backends if choice.name == backend]
    if not own:
        names = list(dict.fromkeys(choice.name for choice in backends))
        raise row.error("backend", f"'{backend}' is not among the backends", backend, names)
    if not any(matches(options, one) for one in own):
        raise row.wrong("options", f"those of a '{backend}' of this experiment", options)
    values = row.section("values")
    numbers = {key: _numbers(values, key, settings, named) for key in values.left()}
    row.finish()
    return PublishedRow(backend, numbers, options)


def _numbers(
    values: YamlSection, workload: str, settings: Sequence[str], named: list[str]
) -> list[float | None]:
    if workload not in named:
        what = f"'{workload}' is not among the workloads"
        raise values.error(workload, what, workload, named)
    found = values.take(workload)
    if not isinstance(found, list) or len(found) != len(settings):
        raise values.wrong(workload, f"a list of {len(settings)}, one for each setting", found)
    return [None if one is None else values.as_number(workload, one) for one in found]


def matches(asked: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Whether a backend's options are as asked; others may be anything."""
    return all(key in options and options[key] == value for key, value in asked.items())
