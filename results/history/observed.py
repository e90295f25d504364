"""What a run, or a file of record, tells of its cells: values, and where they come from."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import results
from harness.core.errors import UserError
from harness.core.names import FINGERPRINT_FIELDS, FINGERPRINT_PACKAGES
from harness.core.nouns import TrialRecord, canonical_json
from results import registry
from results.compare.gate.extraction import own_repeat
from results.compare.gate.identity import DURATION, FIELDS, RELOAD, REPLAY, identity
from results.compare.gate.record_file import read_record
from results.compare.gate.reduced import (
    OF_SEVERAL,
    CellName,
    ReducedRun,
    ReducedTrial,
    cell_name,
)
from results.compare.pooling import SOUND_REPEATS
from results.compare.quality import without_quality
from results.goodput.stored import probes, without_probes
from results.history.copies import Measurement, Observation, ObservedRun, each_once
from results.run import Run
from results.store.records import StoredTrial

_NEW_VERSIONS = (
    "python",
    "gpu_driver",
    "variables",
    *(f"packages.{name}" for name in FINGERPRINT_PACKAGES),
)
"""Fields of `identity` that may change in a series: a step is looked for there too."""
_SCORES = frozenset(metric.name for metric in registry.scores())
RECORD = ".parquet"
_PROBES = "only probes of a search or a sweep, whose rates differ from run to run"


def observed_runs(
    folders: Iterable[Path], records: Iterable[ReducedRun], names: Collection[str]
) -> tuple[list[ObservedRun], list[str]]:
    """Every run once, the oldest first, with the values of `names`; and sentences on those that
    cannot be read. Raises `UserError` for a folder that is named itself and is no run."""
    found: list[ObservedRun] = []
    left_out: list[str] = []
    for path, is_named in _paths(folders):
        try:
            one = _of_path(path, names)
        except (UserError, OSError) as error:
            if is_named:
                raise
            left_out.append(f"left out: {_told(error, path)}")
            continue
        if isinstance(one, str):
            left_out.append(f"left out: {path} has {one}")
        else:
            found.append(one)
    found += [_of_record(run, names) for run in records]
    kept, doubled = each_once(found)
    return kept, left_out + doubled


def _told(error: Exception, path: Path) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or path}: {error.strerror or error}"
    return str(error)


def _paths(folders: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """Runs and files of record, each once, and whether they were named as such."""
    seen: set[str] = set()
    for folder in folders:
        own = [folder]
        if folder.is_dir() and not (folder / "experiment.yaml").exists():
            below = sorted(path for path in folder.iterdir() if _may_be_run(path))
            own = [*below, *sorted(folder.glob(f"*{RECORD}"))] or [folder]
        for path in own:
            real = os.path.realpath(path)  # `Path.resolve` raises for a link to itself
            if real not in seen:
                seen.add(real)
                yield path, path == folder


def _may_be_run(path: Path) -> bool:
    """Of what may not be looked at, who tries to read it says why."""
    try:
        (path / "experiment.yaml").stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _of_path(path: Path, names: Collection[str]) -> ObservedRun | str:
    """Or why it is none."""
    if path.suffix == RECORD and not path.is_dir():
        return _of_record(read_record(path), names)
    run = without_quality(without_probes(results.load(path)))
    if not run.stored:
        return _PROBES if probes(path) else "no trials"
    return _of_run(run, names)


def _of_run(run: Run, names: Collection[str]) -> ObservedRun:
    by_key = {one.record.key: one for one in run.stored}
    cells = []
    for row in run.evaluated["cells"]:
        repeats = [by_key[key] for key in row["keys"]]
        one = repeats[0]
        fields = _fields(run, one)
        values = {name: float(row[name]) for name in names if _is_number(row.get(name))}
        info = one.record.backend
        version = info.version if info is not None else ""
        doubted = {name for name in values if not _holds(row, name)}
        name = cell_name(one.record.trial, run.experiment)
        measured = [_measured(name, fields, stored.record) for stored in repeats]
        cells.append(_observation(name, fields, version, values, doubted, measured))
    return ObservedRun(run.path, cells)


def _measured(cell: CellName, fields: Mapping[str, Any], record: TrialRecord) -> Measurement:
    environment = record.environment
    return Measurement(
        cell.plain,
        _work(fields),
        own_repeat(record.trial),
        environment.get("fingerprint"),
        environment.get("invocation"),
        record.started_at,
        environment.get("commit"),
    )


def _work(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells cells of one plain name apart."""
    return tuple(fields.get(name) for name in sorted(set(OF_SEVERAL.values())))


def _of_record(run: ReducedRun, names: Collection[str]) -> ObservedRun:
    """Medians over the repeats of each cell that are used, by the rule of `CellRepeats`. A record
    of before it told when it was measured stands first."""
    cells = []
    for name, repeats in run.cells().items():
        ended = [one for one in repeats if one.ended_well]
        used = [one for one in ended if not one.is_disturbed]
        if len(used) < SOUND_REPEATS:
            used = ended
        values = {}
        for key in names:
            each = [v for one in used if (v := _value(one, key)) is not None]
            if each:
                values[key] = statistics.median(each)
        is_void = len(ended) < len(repeats) or any(t.doubt or t.broken_promise for t in used)
        measured = [
            Measurement(
                name.plain,
                _work(t.identity),
                t.repeat,
                t.fingerprint,
                t.invocation if t.started else run.where,
                t.started or "",
                t.commit,
            )
            for t in repeats
        ]
        doubted = list(values) if is_void else []
        cells.append(_observation(name, repeats[0].identity, "", values, doubted, measured))
    return ObservedRun(Path(run.where), cells)


def _value(trial: ReducedTrial, key: str) -> float | None:
    if key in _SCORES:
        values = trial.values.get(key)
        return float(np.nanmean(values)) if values is not None else None
    found = trial.numbers.get(key)
    return found if found is not None and math.isfinite(found) else None


def _observation(
    cell: CellName,
    fields: Mapping[str, Any],
    version: str,
    values: Mapping[str, float],
    doubted: Collection[str],
    measured: Iterable[Measurement],
) -> Observation:
    # what records of before it was known do not tell would begin another series
    left_out = {*_NEW_VERSIONS, DURATION}
    same = {name: fields.get(name) for name in FIELDS if name not in left_out}
    same[REPLAY], same[RELOAD] = same[REPLAY] or [], bool(same[RELOAD])
    host = canonical_json({name: same[name] for name in FINGERPRINT_FIELDS if name in same})
    return Observation(
        cell, canonical_json(same), host, _machine(fields), _versions(cell, fields, version),
        values, doubted, frozenset(measured),
    )  # fmt: skip


def _fields(run: Run, stored: StoredTrial) -> dict[str, Any]:
    environment = stored.record.environment
    parts = run.store.read_code(str(environment.get("code"))) or {}
    return identity(stored.record.trial, environment, parts)


def _holds(cell: Mapping[str, Any], key: str) -> bool:
    """Whether a metric of a cell may be believed (see `reports.cells.Cell.holds`)."""
    void = cell["void_metrics"]
    return key not in void and (cell["valid"] or len(void) > 0)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _machine(fields: Mapping[str, Any]) -> str:
    told = fields.get("gpus")
    gpus = told if isinstance(told, list) else []
    names = [str(gpu.get("name", gpu)) if isinstance(gpu, dict) else str(gpu) for gpu in gpus]
    return ", ".join(names) or f"{fields.get('cpu')}, {fields.get('cores')} cores"


def _versions(cell: CellName, fields: Mapping[str, Any], version: str) -> dict[str, str]:
    packages = {name: fields.get(f"packages.{name}") for name in FINGERPRINT_PACKAGES}
    found = {name: str(told) for name, told in packages.items() if told}
    for name in ("python", "gpu_driver"):
        if told := fields.get(name):
            found[name.replace("_", " ")] = str(told)
    variables = fields.get("variables")
    if isinstance(variables, Mapping):
        found.update({f"${name}": str(value) for name, value in variables.items()})
    if version:
        found.setdefault(cell.backend, version)
    return found
