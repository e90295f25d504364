"""The section ``load`` of an experiment file: when requests arrive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast, get_args

from harness.core.errors import UserError
from harness.core.nouns import Load, LoadKind
from harness.experiment.grid import expand
from harness.experiment.limits import Limits
from harness.experiment.section import YamlSection

LOAD_KEYS: Mapping[str, frozenset[str]] = {
    "closed": frozenset({"concurrency"}),
    "poisson": frozenset({"rate"}),
    "constant": frozenset({"rate"}),
    "gamma": frozenset({"rate", "burstiness"}),
    "trace": frozenset({"trace"}),
}


def take_loads(top: YamlSection, limits: Limits) -> Iterator[Load]:
    """The loads of an experiment file. Raises `UserError` for what makes none."""
    for section in top.sections("load", name_key="kind"):
        kind = section.text("kind")
        if kind not in get_args(LoadKind):
            raise section.error("kind", f"unknown load '{kind}'", kind, get_args(LoadKind))
        checksum = section.optional_text("checksum") if kind == "trace" else None
        options = section.rest()
        for key in options:
            if key not in LOAD_KEYS[kind]:
                raise section.error(key, f"unknown key of a '{kind}' load", key, LOAD_KEYS[kind])
        for key in LOAD_KEYS[kind] - options.keys() - {"burstiness"}:
            raise UserError(f"{section.label()}: a '{kind}' load needs the key '{key}'")
        for chosen in expand(options, {}, section, limits, "trials"):
            yield _load(kind, chosen, section, checksum)


def _load(kind: str, chosen: Mapping[str, Any], section: YamlSection, checksum: str | None) -> Load:
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
    return Load(kind=cast(LoadKind, kind), **checked, checksum=checksum)
