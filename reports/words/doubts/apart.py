"""What a folder's trials do not share, in words: no sentence pools two machines, or a machine's
trials of two settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.core.nouns import Trial, TrialRecord, canonical_json, to_json
from reports.numbers import counted
from reports.text import clipped, visible
from results.compare.machines import settings

_TIMED = ("requests", "slo", "seed", "duration_s", "reload")
"""Settings that decide what is measured, beside those that decide answers."""


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
    all have the same. Beside what decides answers, settings count where one machine has a workload
    under one load with several."""
    cells = {record.key: _cell(record.trial) for record in records}
    timed, own = settings(records, _TIMED, lambda one, _: cells[one.key]), settings(records)
    words = setting_words(records, [parts | timed[key] for key, parts in own.items()])
    return dict(zip(own, words, strict=True))


def setting_words(records: Sequence[TrialRecord], found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Settings of these records (`results.compare.machines.settings`) in words, one by one."""
    names = machine_names(records)
    return [
        ", ".join(names[v] if name == "machine" else _told(name, v) for name, v in one.items())
        for one in found
    ]


def _fingerprint(record: TrialRecord) -> str:
    return str(record.environment.get("fingerprint"))


def _cell(trial: Trial) -> str:
    return canonical_json([trial.model.label(), to_json(trial.workload), to_json(trial.load)])


def _told(name: str, value: Any) -> str:
    """``max new tokens 16``, ``slo tpot_ms 11``."""
    field, _, part = name.partition(".")
    told = " ".join(filter(None, (field.replace("_", " "), part, str(value))))
    return visible(clipped(told, 60))
