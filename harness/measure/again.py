"""Which disturbed trials are measured once more, at the end of a run.

A trial is worth what it is compared with, at the same time: so a disturbed one is measured again
together with the trials of the reference and of plain decoding that belong to it, as a repeat of
its own (`harness.core.names.STAND_IN`). Where one of these two was disturbed itself, all trials of
that repeat go with it. Both records are kept.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal

from harness.core.names import DISTURBANCES, STAND_IN, stands_in_for
from harness.core.nouns import Trial, TrialRecord

SHARE = 0.1
"""Of the time that a run took, for measuring again."""
_REMARKS = {
    *("too-few-samples", "noise-not-checked", "lengths-cut", "not-warmed-up"),
    *("calibrated-otherwise", "prompts-seen", "prompts-repeated", "replayed-otherwise"),
    *("unscored", "kv-starved"),
}
State = Literal["sound", "disturbed", "lost"]


@dataclass(frozen=True, slots=True)
class AgainPlan:
    """What to measure again."""

    trials: tuple[Trial, ...]
    disturbed: int
    """Trials that were disturbed and have no other record yet."""
    chosen: int
    """Those of them that `trials` has."""
    budget_s: float
    """What is left of the share."""


def state(record: TrialRecord | None) -> State:
    """What became of a trial: "lost" is one without a good end, or with a reason that will not
    pass."""
    if record is None or record.status != "ok":
        return "lost"
    if record.validity.valid:
        return "sound"
    if any(" about p50" in reason for reason in record.validity.reasons):
        return "lost"  # fewer than a median needs, and as few when measured again
    slugs = {reason.partition(":")[0] for reason in record.validity.reasons} - _REMARKS
    return "disturbed" if slugs and slugs <= DISTURBANCES else "lost"


def plan(
    trials: Sequence[Trial],
    record_of: Callable[[Trial], TrialRecord | None],
    baselines: Sequence[str],
    share: float = SHARE,
    loaded: Set[str] = frozenset(),
) -> AgainPlan:
    """Choose what to measure again, the cheapest first, within `share` of the time that the stored
    records took, less what measuring again has already taken.

    `trials`: the experiment's, in its order; `baselines`: backends that others are compared with,
    each by the first of its variants; `loaded`: keys of engines that need not be loaded for it.
    """
    again = [replace(trial, repeat=trial.repeat + STAND_IN) for trial in trials]
    known = [r for r in map(record_of, (*trials, *again)) if r is not None]
    seconds = durations(known)
    spent = sum(s for key, s in seconds.items() if key.again)
    budget_s = max(0.0, share * (sum(seconds.values()) - spent) - spent)
    units = [
        [t for t in unit if record_of(_stand_in(t)) is None]
        for unit in _units(trials, {t.key(""): state(record_of(t)) for t in trials}, baselines)
    ]
    loading = _loadings(known)
    own = {key: max(0.0, s - loading.get(key, 0.0)) for key, s in seconds.items()}
    prices = [_price(unit, record_of, own, loaded) for unit in units]
    chosen: list[Trial] = []
    left_s = budget_s
    for price, place in sorted((price, place) for place, price in enumerate(prices) if price):
        if price <= left_s:
            chosen += units[place]
            left_s -= price
    hurt = [t for unit in units for t in unit if state(record_of(t)) == "disturbed"]
    mended = {trial.key("") for trial in chosen}
    return AgainPlan(
        tuple(_stand_in(trial) for trial in chosen),
        len(hurt),
        sum(trial.key("") in mended for trial in hurt),
        budget_s,
    )


@dataclass(frozen=True, slots=True)
class RecordKey:
    """A stored record, and whether it was measured in the place of another."""

    key: str
    again: bool


def durations(records: Sequence[TrialRecord]) -> dict[RecordKey, float]:
    """Seconds that each trial took, loading included: to the beginning of the next one of the same
    invocation, which for its last is supposed to be the median."""
    groups: dict[object, list[tuple[float, RecordKey]]] = {}
    for record in records:
        begun = record.environment.get("since_invocation_s")
        if begun is not None:
            key = RecordKey(record.key, stands_in_for(record.trial.repeat) is not None)
            groups.setdefault(record.environment.get("invocation"), []).append((begun, key))
    found: dict[RecordKey, float] = {}
    last: list[RecordKey] = []
    for group in groups.values():
        group.sort(key=lambda pair: pair[0])
        for (begun, key), (after, _) in itertools.pairwise(group):
            found[key] = after - begun
        last.append(group[-1][1])
    usual = statistics.median(found.values()) if found else 0.0
    return found | dict.fromkeys(last, usual)


def _loadings(records: Sequence[TrialRecord]) -> dict[RecordKey, float]:
    """Of the trials for which an engine was loaded, the first ones of it in their invocation: how
    long that took."""
    found: dict[RecordKey, float] = {}
    seen = set[object]()
    for record in sorted(records, key=lambda r: r.environment.get("since_invocation_s") or 0.0):
        trial = record.trial
        engine = trial.engine_key(), trial.repeat if trial.reload else None
        own = record.environment.get("invocation"), engine
        if own not in seen:
            seen.add(own)
            again = stands_in_for(trial.repeat) is not None
            found[RecordKey(record.key, again)] = record.setup_s or 0.0
    return found


def _units(
    trials: Sequence[Trial], states: Mapping[str, State], baselines: Sequence[str]
) -> list[list[Trial]]:
    """Trials that are measured again together, for each repeat of a workload and load that has a
    disturbed one."""
    groups: dict[tuple[str, bool], list[Trial]] = {}
    for trial in trials:
        alike = replace(trial, backend="", options={}).key("")
        groups.setdefault((alike, trial.replays), []).append(trial)
    units = []
    for group in groups.values():
        first = {name: next((t for t in group if t.backend == name), None) for name in baselines}
        compared = [trial for trial in first.values() if trial is not None]
        hurt = [t for t in group if states[t.key("")] == "disturbed"]
        if not hurt:
            continue
        wanted = group if any(t in hurt for t in compared) else [*compared, *hurt]
        unique = {t.key(""): t for t in group if t in wanted}
        units.append([t for key, t in unique.items() if states[key] != "lost"])
    return units


def _price(
    unit: Sequence[Trial],
    record_of: Callable[[Trial], TrialRecord | None],
    seconds: Mapping[RecordKey, float],
    loaded: Set[str],
) -> float:
    """Seconds that a unit is supposed to take: what its trials took without loading, and loading
    those of their engines that are not."""
    found = [record for trial in unit if (record := record_of(trial)) is not None]
    loads = {record.trial.engine_key(): record.setup_s or 0.0 for record in found}
    loading_s = sum(setup_s for key, setup_s in loads.items() if key not in loaded)
    return sum(seconds.get(RecordKey(r.key, False), 0.0) for r in found) + loading_s


def _stand_in(trial: Trial) -> Trial:
    return replace(trial, repeat=trial.repeat + STAND_IN)
