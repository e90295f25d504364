"""Whether trials of one folder come from several machines or set-ups, whose rows stand apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from results.compare.gate.identity import MACHINE

WHERE = (*MACHINE, "packages")
"""Fields in which the environments of trials that may not be pooled can differ."""


def machines(environments: Sequence[Mapping[str, Any]]) -> int:
    """How many fingerprints these records' environments have."""
    return len({str(environment.get("fingerprint")) for environment in environments})


def differing(environments: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the fields that are not equal in all; of packages and variables, which ones."""
    found: list[str] = []
    for field in WHERE:
        values = [environment.get(field) for environment in environments]
        if all(value == values[0] for value in values):
            continue
        inner = [value if isinstance(value, Mapping) else {} for value in values]
        names = sorted({name for value in inner for name in value})
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
