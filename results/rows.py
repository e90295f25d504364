"""The metrics of a run: one row per trial, and one per cell with its repeats pooled.

`results.registry` says what each metric is, and docs/metrics.md the rest.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.core.nouns import Validity
from results import registry
from results.compare import validity
from results.compare.pairing import (
    ComparableTrials,
    Member,
    Versus,
    data_rows,
    make_group,
    noise_floor,
    versus,
)
from results.compare.stats import Interval, speedup_interval
from results.metrics import work
from results.metrics.arrays import Floats
from results.registry import TrialInputs
from results.summary import identity, metrics

if TYPE_CHECKING:
    from results.run import Run


def summaries(run: Run) -> list[dict[str, Any]]:
    """One mapping per stored trial, as `show --json` prints it: what was run, its status and
    validity, and every metric by name; None where undefined, always the same keys.

    `void_metrics` names the metrics that must not be believed, for what `invalid_reasons` tells.
    `speedup` is of the trial's own repeat; `speedup_low`, `speedup_high` and `noise_floor` are of
    its cell, all repeats pooled. The same holds for `speedup_native`.
    """
    return run.evaluated["trials"]


def cells(run: Run) -> list[dict[str, Any]]:
    """One mapping per cell (backend, options, model, workload, load) with its repeats pooled.

    Metrics are medians over the repeats that ended well, and `spread` has their [least, greatest];
    `speedup` is the geometric mean over all pairs of all repeats, with its interval, and
    `exits_by_layer`, `exits_by_batch` and `mixed_steps` add the repeats up. `repeats` counts them,
    `statuses` counts all trials by status, `keys` names them. A cell is valid when each of its
    trials is, and a metric is among its `void_metrics` when it is among those of one.
    """
    return run.evaluated["cells"]


def evaluate(
    members: Sequence[Member], experiment: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows and cells of the trials of one group (see `results.compare.pairing`)."""
    group = make_group(members, experiment)
    own = {m.stored.record.key: validity.alone(m, group) for m in members}
    floor = noise_floor(
        {
            repeat: member
            for repeat, member in group.reference.items()
            if validity.answers_hold(own[member.stored.record.key])
            and not member.stored.record.is_replay
        }
    )
    rows, pooled = [], []
    for same in _by_variant(members):
        pairs = [versus(m, group.reference) for m in same]
        natives = [versus(m, group.native) for m in same]
        found = [_row(*parts, group, own) for parts in zip(same, pairs, natives, strict=True)]
        intervals = {
            "speedup": _interval(same, pairs),
            "speedup_matched": _interval(same, pairs, matched=True),
            "speedup_native": _interval(same, natives),
        }
        for member, row in zip(same, found, strict=True):
            row["noise_floor"] = None if member.stored.record.is_replay else floor
            for name, interval in intervals.items():
                row[f"{name}_low"] = interval.low if interval else None
                row[f"{name}_high"] = interval.high if interval else None
        rows += found
        pooled.append(_cell(same, found, intervals, group))
        validity.tell_of_the_cell(found)
    return rows, pooled


def _row(
    member: Member,
    against: Versus | None,
    native: Versus | None,
    group: ComparableTrials,
    own: Mapping[str, Validity],
) -> dict[str, Any]:
    record = member.stored.record
    numbers = metrics(TrialInputs(record, member.requests, against, native))
    compared = ((validity.REFERENCE, against), (validity.NATIVE, native))
    verdict = validity.judge(member, compared, own, list(numbers))
    return {
        "key": record.key,
        **identity(member, group),
        "repeat": record.trial.repeat,
        "status": record.status,
        "error": record.error,
        "valid": verdict.valid,
        "invalid_reasons": list(verdict.reasons),
        "void_metrics": list(verdict.void),
        "started_at": record.started_at,
        **numbers,
    }


def _cell(
    same: Sequence[Member],
    rows: Sequence[Mapping[str, Any]],
    intervals: Mapping[str, Interval | None],
    group: ComparableTrials,
) -> dict[str, Any]:
    ended = [row for row in rows if row["status"] == "ok"]
    statuses = [row["status"] for row in rows]
    cell: dict[str, Any] = {
        **identity(same[0], group),
        "keys": [row["key"] for row in rows],
        "repeats": len(ended),
        "statuses": {status: statuses.count(status) for status in sorted(set(statuses))},
        "valid": all(row["valid"] for row in rows),
        "invalid_reasons": list(dict.fromkeys(r for row in rows for r in row["invalid_reasons"])),
    }
    spread = {}
    names = list(rows[0])
    names = names[names.index("started_at") + 1 :]
    void = {name for row in rows for name in row["void_metrics"]}
    cell["void_metrics"] = [name for name in names if name in void]
    for name in names:
        values = [row[name] for row in ended if isinstance(row[name], int | float)]
        cell[name] = statistics.median(values) if values else None
        spread[name] = [min(values), max(values)] if values else None
    for name, interval in intervals.items():
        cell[name] = interval.value if interval else None
    for name in (key for m in registry.METRICS if m.pooled == "sum" for key in m.keys):
        # numbers are counts then, not rates: shares of all tokens need their sum
        if spread[name] is not None:
            del spread[name]
        cell[name] = _added([row[name] for row in ended])
    return {**cell, "spread": spread}


def _added(values: Sequence[Any]) -> Any:
    numbers = [value for value in values if isinstance(value, int | float)]
    return sum(numbers) if numbers else work.added(values)


def _interval(
    same: Sequence[Member], pairs: Sequence[Versus | None], *, matched: bool = False
) -> Interval | None:
    """Pool the repeats of one cell. Against itself a backend's speed-up is 1, without bounds."""
    both = list(zip(same, pairs, strict=True))
    if any(pair is not None and pair.other is member for member, pair in both):
        return Interval(1.0, None, None)
    ids: list[list[str]] = []
    logs: list[Floats] = []
    for member, pair in both:
        if pair is not None and pair.log_ratios is not None and member.requests is not None:
            ids.append(member.requests.ids)
            logs.append(pair.matched if matched and pair.matched is not None else pair.log_ratios)
    if not logs:
        return None
    names, matrix = _matrix(ids, logs)
    return speedup_interval(matrix, data_rows(names))


def _matrix(ids: Sequence[Sequence[str]], values: Sequence[Floats]) -> tuple[Sequence[str], Floats]:
    """Request ids, and (repeats, requests) of values by id, NaN where a repeat lacks one."""
    if all(names == ids[0] for names in ids):
        return ids[0], np.array(values)
    place = {name: i for i, name in enumerate(dict.fromkeys(n for row in ids for n in row))}
    matrix = np.full((len(ids), len(place)), np.nan)
    for row, names, found in zip(matrix, ids, values, strict=True):
        row[[place[name] for name in names]] = found
    return list(place), matrix


def _by_variant(members: Sequence[Member]) -> Iterator[list[Member]]:
    found: dict[str, list[Member]] = {}
    for member in members:
        found.setdefault(member.variant, []).append(member)
    yield from found.values()
