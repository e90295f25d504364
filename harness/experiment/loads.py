"""The section ``load`` of an experiment file: when requests arrive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from harness.core.canonical import later
from harness.core.errors import UserError
from harness.core.nouns import Load, LoadKind
from harness.experiment.grid import expand
from harness.experiment.limits import Limits
from harness.experiment.section import YamlSection

SWEEP = "sweep"
LOAD_KEYS: Mapping[str, frozenset[str]] = {
    "closed": frozenset({"concurrency"}),
    "poisson": frozenset({"rate", "redraw"}),
    "constant": frozenset({"rate"}),
    "gamma": frozenset({"rate", "burstiness", "redraw"}),
    "trace": frozenset({"trace"}),
    SWEEP: frozenset({"points", "redraw"}),
}
FEWEST_POINTS, POINTS, MOST_POINTS = 3, 10, 100


@dataclass(frozen=True, slots=True)
class RateSweep:
    """Poisson arrivals at rates from idle to saturation, which each system finds for itself: no
    load of a trial, but what chooses loads."""

    points: int = POINTS
    """Rates for each system, at most."""
    redraw: bool | None = later()  # as `Load` has it


def take_loads(top: YamlSection, limits: Limits) -> tuple[tuple[Load, ...], RateSweep | None]:
    """The loads of an experiment file, and the sweep where it has one. Raises `UserError` for what
    makes none."""
    loads: list[Load] = []
    sweep = None
    for section in top.sections("load", name_key="kind"):
        kind = section.text("kind")
        if kind != SWEEP:
            loads += _loads(kind, section, limits)
        elif sweep is not None:
            raise UserError(f"{section.label()}: a second '{SWEEP}'; one has all rates in it")
        else:
            points = section.integer("points", POINTS, least=FEWEST_POINTS, most=MOST_POINTS)
            redraw = section.flag("redraw", default=False)
            section.finish()
            sweep = RateSweep(points, redraw or None)
    return tuple(loads), sweep


def _loads(kind: str, section: YamlSection, limits: Limits) -> Iterator[Load]:
    if kind not in LOAD_KEYS:
        raise section.error("kind", f"unknown load '{kind}'", kind, LOAD_KEYS)
    checksum = section.optional_text("checksum") if kind == "trace" else None
    redraw = "redraw" in LOAD_KEYS[kind] and section.flag("redraw", default=False)
    options = section.rest()
    for key in options:
        if key not in LOAD_KEYS[kind]:
            raise section.error(key, f"unknown key of a '{kind}' load", key, LOAD_KEYS[kind])
    for key in LOAD_KEYS[kind] - options.keys() - {"burstiness", "redraw"}:
        raise UserError(f"{section.label()}: a '{kind}' load needs the key '{key}'")
    for chosen in expand(options, {}, section, limits, "trials"):
        yield replace(_load(kind, chosen, section, checksum), redraw=redraw or None)


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
