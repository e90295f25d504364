"""Whether trials of one folder come from several machines or set-ups, or were asked with several
settings: their rows stand apart, and nothing is pooled over two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.core.names import FINGERPRINT_FIELDS, FINGERPRINT_PACKAGES
from harness.core.nouns import Trial, TrialRecord, canonical_json, to_json

WHERE = (*FINGERPRINT_FIELDS, "packages")
"""Fields in which the environments of trials that may not be pooled can differ."""
ANSWERED = ("model", "max_new_tokens", "ignore_eos", "sampling")
"""Fields of a trial that decide its answers, beside its engine and its prompts."""


def machines(environments: Sequence[Mapping[str, Any]]) -> int:
    """How many fingerprints these records' environments have."""
    return len({str(environment.get("fingerprint")) for environment in environments})


def workload_asked(trial: Trial) -> str:
    """Equal for trials of one model and workload, whichever of its prompts they ask."""
    workload = replace(trial.workload, rows=None, checksum=None)
    return canonical_json([to_json(trial.model), to_json(workload)])


def _answered_at(record: TrialRecord, name: str) -> str:
    """Each workload may have a length of its own, and all else is one for all of them."""
    asked = record.trial
    return workload_asked(asked) if name == "max_new_tokens" else asked.model.label()


def settings(
    records: Sequence[TrialRecord],
    fields: Sequence[str] = ANSWERED,
    place: Callable[[TrialRecord, str], str] = _answered_at,
) -> dict[str, dict[str, Any]]:
    """Trial key -> what tells its setting from others of the run: the fingerprint under "machine"
    where there are several, and by name (``sampling.temperature``) what one machine has several of
    at one place; empty where all trials have the same.

    Args:
        records: of the whole run.
        fields: of a trial, which settings are made of.
        place: of a record: where it may have but one value of a name, so that answers may be
            pooled.
    """
    machine = {r.key: str(r.environment.get("fingerprint")) for r in records}
    own = {r.key: dict(_parts(r.trial, fields)) for r in records}
    values: dict[tuple[str, str, str], set[Any]] = {}
    for record in records:
        for name, value in own[record.key].items():
            where = name, machine[record.key], place(record, name)
            values.setdefault(where, set()).add(value)
    several = dict.fromkeys(name for (name, _, _), found in values.items() if len(found) > 1)
    own = {key: {name: parts[name] for name in several} for key, parts in own.items()}
    if len(set(machine.values())) == 1:
        return own
    return {key: {"machine": machine[key], **parts} for key, parts in own.items()}


def _parts(trial: Trial, fields: Sequence[str]) -> Iterator[tuple[str, Any]]:
    told = to_json(trial)
    for name in fields:
        value = told.get(name, False)  # of what is left out where it is not set
        if isinstance(value, Mapping):
            yield from ((f"{name}.{part}", one) for part, one in value.items())
        else:
            yield name, value


def differing(environments: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the fields that are not equal in all; of packages and variables, which ones: first
    the packages that decide whether trials are of one set-up."""
    found: list[str] = []
    for field in WHERE:
        values = [environment.get(field) for environment in environments]
        if all(value == values[0] for value in values):
            continue
        inner = [value if isinstance(value, Mapping) else {} for value in values]
        every = {name for value in inner for name in value}
        names = sorted(every, key=lambda name: (name not in FINGERPRINT_PACKAGES, name))
        found += [n for n in names if any(v.get(n) != inner[0].get(n) for v in inner)] or [field]
    return found or ["what is not recorded"]


def pooled_hosts(environments: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the hosts that have one fingerprint, so that their trials are pooled; none where
    each has its own."""
    alike: dict[str, set[str]] = {}
    for environment in environments:
        if host := environment.get("host"):
            alike.setdefault(str(environment.get("fingerprint")), set()).add(str(host))
    return sorted({host for hosts in alike.values() if len(hosts) > 1 for host in hosts})
