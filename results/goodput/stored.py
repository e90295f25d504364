"""What ``decodebench goodput`` left in a run folder: its probes, and what was found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from results.goodput.answers import ProbedAnswers

ANSWER = "goodput.json"


@dataclass(frozen=True, slots=True)
class StoredProbe:
    """One rate that was tried; rates in requests per second, shares from 0 to 1."""

    rate: float
    came_about: float
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class StoredScale:
    """The rate found where every bound of the objective is so many times as wide."""

    scale: float
    rate: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class StoredSearch:
    """What came of one system. The rates are None where none was found."""

    rate: float | None
    low: float | None
    high: float | None
    limit: str
    ended: str
    """Why no more rates were tried."""
    probes: tuple[StoredProbe, ...]
    keys: tuple[str, ...]
    """Of its trials, the idle one first."""
    scales: tuple[StoredScale, ...] = ()
    """Other objectives, ascending; empty where none were asked for."""
    answers: ProbedAnswers | None = None
    """What they are worth at the rate found."""


@dataclass(frozen=True, slots=True)
class StoredSearches:
    """All searches of a folder."""

    share: float
    confidence: float
    trials: frozenset[str]
    """Keys of all probes that were ever begun here, those of broken-off searches too."""
    systems: tuple[StoredSearch, ...]


def read_searches(folder: Path) -> StoredSearches | None:
    """The searches of a run folder; None where there was none. Raises `UserError` for a file that
    ``goodput`` did not write."""
    path = folder / ANSWER
    try:
        found = json.loads(path.read_bytes())
        return StoredSearches(
            float(found["share"]),
            float(found["confidence"]),
            frozenset(map(str, found.get("trials", ()))),
            # an older file names no trials: then nobody knows whose the probes are
            tuple(_search(one) for one in found["systems"] if one.get("keys")),
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        told = f"{path}: is broken ({type(error).__name__}: {error})"
        raise UserError(f"{told}; expected what 'decodebench goodput' writes") from None


def _search(one: Mapping[str, Any]) -> StoredSearch:
    probes = (
        StoredProbe(*(float(p[k]) for k in ("rate", "rate_came_about", "share", "low", "high")))
        for p in one["probes"]
    )
    limit, ended, keys = str(one["limit"]), str(one["ended"]), tuple(map(str, one["keys"]))
    answers = one.get("answers")
    return StoredSearch(
        *_rates(one),
        limit,
        ended,
        tuple(probes),
        keys,
        tuple(StoredScale(float(s["scale"]), *_rates(s)) for s in one.get("scales", ())),
        ProbedAnswers(**answers) if answers else None,
    )


def _rates(one: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    rate, low, high = (
        None if one[key] is None else float(one[key])
        for key in ("rate_per_s", "low_per_s", "high_per_s")
    )
    return rate, low, high
