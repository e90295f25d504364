"""What a folder's trials do not share, in words: no sentence pools two machines, or a machine's
trials of two settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.core.nouns import Trial, TrialRecord, canonical_json, to_json
from reports.numbers import counted
from reports.text import clipped, visible

_NO_SETTING = ("backend", "options", "repeat", "workload", "load")


def machine(environment: Mapping[str, Any]) -> str:
    """One line: processor, cores, memory, GPUs."""
    cpu = environment.get("cpu") or "unknown processor"
    parts = [str(cpu)]
    if cores := environment.get("cores"):
        parts.append(counted(int(cores), "core"))
    if memory := environment.get("memory_gib"):
        parts.append(f"{memory} GiB")
    gpus = [gpu.get("name", "GPU") for gpu in environment.get("gpus") or []]
    parts.append(" + ".join(map(str, gpus)) if gpus else "no GPU")
    return ", ".join(parts)


def machine_names(records: Sequence[TrialRecord]) -> dict[str, str]:
    """Fingerprint -> the machine in a line, with the fingerprint where two would read alike."""
    first = {_fingerprint(record): machine(record.environment) for record in reversed(records)}
    found = {_fingerprint(record): first[_fingerprint(record)] for record in records}
    lines = list(found.values())
    return {
        name: visible(clipped(line if lines.count(line) == 1 else f"{line}, set-up {name}", 120))
        for name, line in found.items()
    }


def apart(records: Sequence[TrialRecord]) -> dict[str, str]:
    """Trial key -> what tells its machine and settings from others' of the run; empty text where
    all have the same. Settings count where one machine has a workload under one load with several:
    each workload may have a length of its own."""
    names = machine_names(records)
    fields, trials = _differing(records), {r.key: to_json(r.trial) for r in records}
    values = {field: [trial[field] for trial in trials.values()] for field in fields}
    return {
        record.key: ", ".join(
            [names[_fingerprint(record)]] * (len(names) > 1)
            + [_told(field, trials[record.key][field], values[field]) for field in fields]
        )
        for record in records
    }


def _fingerprint(record: TrialRecord) -> str:
    return str(record.environment.get("fingerprint"))


def _differing(records: Sequence[TrialRecord]) -> list[str]:
    """The settings of which a place has several."""
    found: dict[tuple[str, ...], dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        place = (_fingerprint(record), *_place(record.trial))
        for field, value in to_json(record.trial).items():
            if field not in _NO_SETTING and value not in found[place][field]:
                found[place][field].append(value)
    several = (field for own in found.values() for field in own if len(own[field]) > 1)
    return list(dict.fromkeys(several))


def _place(trial: Trial) -> Iterator[str]:
    yield trial.model.label()
    yield canonical_json(to_json(trial.workload))
    yield canonical_json(to_json(trial.load))


def _told(field: str, value: Any, values: Sequence[Any]) -> str:
    """A setting with its value; of one of several parts those that differ."""
    name = field.replace("_", " ")
    if not isinstance(value, Mapping):
        return visible(clipped(f"{name} {value}", 60))
    parts = [
        f"{key} {value.get(key)}"
        for key in dict.fromkeys(key for one in values for key in one)
        if any(one.get(key) != value.get(key) for one in values)
    ]
    return visible(clipped(f"{name} {' '.join(parts)}", 80))
