"""What searches and sweeps of rates left in a run folder: their probes, and what was found."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.core.errors import UserError
from results.goodput.answers import ProbedAnswers

if TYPE_CHECKING:
    from results.run import Run

ANSWER = "goodput.json"
CURVES = "sweep.json"
_Read = TypeVar("_Read")


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
    """What came of one system. The rates are None where none was found; `low` alone is the highest
    that held, of a system that missed none."""

    rate: float | None
    low: float | None
    high: float | None
    limit: str
    ended: str
    """Why no more rates were tried."""
    probes: tuple[StoredProbe, ...]
    keys: tuple[str, ...]
    """Of its trials, the idle one first."""
    scales: tuple[StoredScale, ...]
    """Other objectives, ascending; empty where none were asked for."""
    answers: ProbedAnswers | None
    """What they are worth at the rate found."""

    @property
    def sustained(self) -> float | None:
        """The rate, or the highest that held where none was missed."""
        return self.low if self.rate is None else self.rate

    @property
    def is_at_least(self) -> bool:
        """Whether that is a lower bound: no rate was missed."""
        return self.rate is None and self.low is not None


@dataclass(frozen=True, slots=True)
class StoredSearches:
    """All searches of a folder."""

    share: float
    confidence: float
    trials: frozenset[str]
    """Keys of all probes that were ever begun here, those of broken-off searches too."""
    systems: tuple[StoredSearch, ...]


@dataclass(frozen=True, slots=True)
class StoredPoint:
    """One load of a sweep."""

    rate: float | None
    """Asked for, requests per second; None: one request at a time."""
    kept_up: bool
    """Whether as many requests left as came."""
    keys: tuple[str, ...]
    """Of its trials, a repeat each."""


@dataclass(frozen=True, slots=True)
class StoredCurve:
    """One system from idle to saturation, which lies between two rates. None: not seen."""

    low: float | None
    high: float | None
    ended: str
    """Why no more rates were tried."""
    points: tuple[StoredPoint, ...]


def read_searches(folder: Path) -> StoredSearches | None:
    """The searches of a run folder; None where there was none. Raises `UserError` for a file that
    ``goodput`` did not write."""
    return _read(folder / ANSWER, _searches, "decodebench goodput")


def read_curves(folder: Path) -> tuple[StoredCurve, ...]:
    """The systems that a run swept. Raises `UserError` for a file that ``run`` did not write."""
    return _read(folder / CURVES, _curves, "decodebench run") or ()


def begun(path: Path) -> frozenset[str]:
    """Keys of all probes that a file of searches or of a sweep ever named. Raises `UserError`."""
    found = _read(path, lambda told: frozenset(map(str, told["trials"])), "decodebench")
    return found or frozenset()


def probes(folder: Path) -> frozenset[str]:
    """Keys of all trials of a run folder that are probes. Raises `UserError`."""
    searches = read_searches(folder)
    return begun(folder / CURVES) | (searches.trials if searches else frozenset())


def without_probes(run: Run) -> Run:
    """The run as if its probes were not stored. Raises `UserError`."""
    found = probes(run.path)
    return run.without(found) if found else run


def _read(path: Path, take: Callable[[Any], _Read], writer: str) -> _Read | None:
    try:
        return take(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        told = f"{path}: is broken ({type(error).__name__}: {error})"
        raise UserError(f"{told}; expected what '{writer}' writes") from None


def _searches(found: Any) -> StoredSearches:
    return StoredSearches(
        float(found["share"]),
        float(found["confidence"]),
        frozenset(map(str, found["trials"])),
        tuple(_search(one) for one in found["systems"] if one["keys"]),
    )


def _curves(found: Any) -> tuple[StoredCurve, ...]:
    return tuple(_curve(one) for one in found["systems"])


def _curve(one: Mapping[str, Any]) -> StoredCurve:
    points = (
        StoredPoint(_number(p["rate"]), bool(p["kept_up"]), tuple(map(str, p["keys"])))
        for p in one["points"]
    )
    low, high = _number(one["low_per_s"]), _number(one["high_per_s"])
    return StoredCurve(low, high, str(one["ended"]), tuple(points))


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _search(one: Mapping[str, Any]) -> StoredSearch:
    probes = (
        StoredProbe(*(float(p[k]) for k in ("rate", "rate_came_about", "share", "low", "high")))
        for p in one["probes"]
    )
    limit, ended, keys = str(one["limit"]), str(one["ended"]), tuple(map(str, one["keys"]))
    answers = one["answers"]
    return StoredSearch(
        *_rates(one),
        limit,
        ended,
        tuple(probes),
        keys,
        tuple(StoredScale(float(s["scale"]), *_rates(s)) for s in one["scales"]),
        ProbedAnswers(**answers) if answers else None,
    )


def _rates(one: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
    rate, low, high = (_number(one[key]) for key in ("rate_per_s", "low_per_s", "high_per_s"))
    return rate, low, high
