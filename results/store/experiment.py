"""The resolved experiment in a run's folder, held against what readers of the folder rely on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core import files
from harness.core.errors import UserError
from harness.core.nouns import QUALITY_MARGIN, Workload, canonical_json
from results.store.typed import UnknownDataError, check_fields


def read_resolved(path: Path) -> dict[str, Any]:
    """The content of an ``experiment.yaml``; empty when there is no such file. Raises `UserError`
    for what is no resolved experiment, one that is to be run too."""
    import yaml

    try:
        data = yaml.safe_load(files.read_plain(path).decode())
    except FileNotFoundError:
        return {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: not readable as YAML ({reason})") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected a mapping, found {type(data).__name__}")
    listed = data.get("workloads")
    asked = listed if isinstance(listed, list) else []
    if not all(isinstance(one, dict) and "workload" in one for one in asked):
        raise UserError(
            f"{path}: is an experiment to be run ('decodebench run'), so {path.parent} is no run "
            "folder; expected one that 'decodebench run' wrote"
        )
    try:
        canonical_json(data)
        check_fields(_Resolved, data)
    except UnknownDataError as error:
        raise UserError(
            f"{path}: written by a newer decodebench ({error} is not known); read it with that one"
        ) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: no resolved experiment ({error})") from None
    return data


@dataclass(frozen=True, slots=True)
class _Backend:
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str | None = None


@dataclass(frozen=True, slots=True)
class _AskedWorkload:
    workload: Workload
    max_new_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class _PublishedRow:
    backend: str
    values: Mapping[str, Sequence[float | None] | None]
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _PublishedTable:
    source: str
    metric: str
    settings: Sequence[str]
    note: str
    rows: Sequence[_PublishedRow]


@dataclass(frozen=True, slots=True)
class _Resolved:
    """The fields that are read, as `harness.experiment.config.Experiment` has them."""

    name: str = ""
    reference: str | None = None
    backends: Sequence[_Backend] = ()
    workloads: Sequence[_AskedWorkload] = ()
    repeats: int = 1
    quality_margin: float = QUALITY_MARGIN
    published: _PublishedTable | None = None
