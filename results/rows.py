"""The metrics of a run: one row per trial, and one per cell with its repeats pooled.

`results.registry` says what each metric is, and docs/metrics.md the rest.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.core.names import stands_in_for
from harness.core.nouns import Validity
from results import registry
from results.compare import validity
from results.compare.decomposition import PARTS
from results.compare.intervals.several import CellEffects, cell_effects
from results.compare.lossless import verdicts
from results.compare.lossless.cells import GroupTexts, in_settings
from results.compare.lossless.verdicts import BackendText
from results.compare.pairing import (
    ComparableTrials,
    Member,
    Versus,
    data_rows,
    make_group,
    noise_floor,
    versus,
    with_itself,
)
from results.compare.pooling import CellRepeats
from results.compare.reasons import answers_hold
from results.compare.stats import Interval, by_request, length_interval, speedup_interval
from results.metrics import work
from results.metrics.arrays import Floats, Ints
from results.registry import TrialInputs
from results.summary import identity, metrics

if TYPE_CHECKING:
    from harness.core.ceilings import Ceilings
    from results.run import Run

_PAIRED = ("speedup", "speedup_native")
"""Speed-ups of which it is told how many repeats they rest on, and how many would settle them."""


def summaries(run: Run) -> list[dict[str, Any]]:
    """One mapping per stored trial, as `show --json` prints it: what was run, its status and
    validity, and every metric by name; None where undefined, always the same keys.

    `void_metrics` names the metrics that must not be believed, for what `invalid_reasons` tells.
    `left_out`: its cell does without this trial; `stands_in_for`: the repeat that was disturbed and
    in whose place it was measured.
    `speedup` is of the trial's own repeat; `speedup_low`, `speedup_high` and `noise_floor` are of
    its cell, all repeats pooled. The same holds for `speedup_native`.
    """
    return run.evaluated["trials"]


def cells(run: Run) -> list[dict[str, Any]]:
    """One mapping per cell (backend, options, model, workload, load) with its repeats pooled.

    Metrics are medians over the repeats that ended well, and `spread` has their [least, greatest];
    `speedup` is the geometric mean over all pairs of all repeats, with its interval, and
    `exits_by_layer`, `exits_by_batch` and `mixed_steps` add the repeats up. `repeats` counts them,
    `repeats_used` those that nothing passing disturbed, where at least two are left: all of this is
    over them (see `results.compare.pooling`). `statuses` counts all trials by status, `keys` names
    them. A cell is valid when each trial that it uses is, and a metric is among its `void_metrics`
    when it is among those of one.
    """
    return run.evaluated["cells"]


def text_verdicts(run: Run) -> list[BackendText]:
    """Of each backend with its options on each model, in each setting: is its text the reference's
    (and, on our own engine, plain decoding's)? See `results.compare.lossless.verdicts`."""
    return verdicts.text_verdicts(in_settings(run.evaluated["texts"], run.stored))


class Evaluated(NamedTuple):
    """What comes of the trials of one group (see `results.compare.pairing`)."""

    trials: list[dict[str, Any]]
    cells: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    """In step with the cells: by speed-up, what pooling it with other cells' takes."""
    texts: list[dict[str, Any]]
    """What the answers say of whether they are others' (see `results.compare.lossless`)."""


def evaluate(
    members: Sequence[Member], experiment: Mapping[str, Any], ceilings: Ceilings | None = None
) -> Evaluated:
    """Rows and cells of the trials of one group, whose machine reaches these ceilings."""
    group, repeated = make_group(members, experiment), _by_variant(members)
    own = {m.stored.record.key: validity.alone(m, group, same) for same in repeated for m in same}
    own_pairs = with_itself(group.reference)
    floor = noise_floor(
        agreement
        for *pair, agreement in own_pairs
        if all(_tells_noise(one, own[one.stored.record.key]) for one in pair)
    )
    found_rows, pooled, effects = [], [], []
    compared, texts = GroupTexts(group, own_pairs), list[dict[str, Any]]()
    for same in repeated:
        pairs = [versus(m, group.reference) for m in same]
        natives = [versus(m, group.native(m)) for m in same]
        parts = zip(same, pairs, natives, strict=True)
        judged = [_row(*part, group, own, ceilings) for part in parts]
        found = [row for row, _ in judged]
        repeats = CellRepeats(found, [verdict for _, verdict in judged])
        for place in repeats.left_out():
            found[place]["left_out"] = True
        intervals = _intervals(same, pairs, natives, repeats)
        for member, row in zip(same, found, strict=True):
            row["noise_floor"] = None if member.stored.record.is_replay else floor
            row.update(_of_the_cell(intervals))
        found_rows += found
        pooled.append(_cell(same, repeats, intervals, group))
        effects.append(_effects(same, pairs, natives, repeats))
        texts += compared.of_cell(same, pairs, natives)
        validity.tell_of_the_cell(found, pooled[-1]["void_metrics"])
    return Evaluated(found_rows, pooled, effects, texts)


def _tells_noise(member: Member, verdict: Validity) -> bool:
    return answers_hold(verdict) and not member.stored.record.is_replay


def _row(
    member: Member,
    against: Versus | None,
    native: Versus | None,
    group: ComparableTrials,
    own: Mapping[str, Validity],
    ceilings: Ceilings | None,
) -> tuple[dict[str, Any], validity.Reasons]:
    record = member.stored.record
    numbers = metrics(TrialInputs(record, member.requests, against, native, ceilings))
    compared = ((validity.REFERENCE, against), (validity.NATIVE, native))
    verdict = validity.judge(member, compared, own, list(numbers))
    row = {
        "key": record.key,
        **identity(member, group),
        "repeat": record.trial.repeat,
        "stands_in_for": stands_in_for(record.trial.repeat),
        "status": record.status,
        "error": record.error,
        "valid": verdict.valid,
        "invalid_reasons": list(verdict.reasons),
        "void_metrics": list(verdict.void),
        "left_out": False,
        "started_at": record.started_at,
        **numbers,
    }
    return row, verdict


def _cell(
    same: Sequence[Member],
    repeats: CellRepeats,
    intervals: Mapping[str, Interval | None],
    group: ComparableTrials,
) -> dict[str, Any]:
    rows = repeats.rows
    ended = [row for row in rows if row["status"] == "ok"]
    statuses = [row["status"] for row in rows]
    cell: dict[str, Any] = {
        **identity(same[0], group),
        "keys": [row["key"] for row in rows],
        "repeats": len(ended),
        "repeats_used": len(ended) - len(repeats.left_out()),
        "statuses": {status: statuses.count(status) for status in sorted(set(statuses))},
        "valid": repeats.valid,
        "noise_checked": repeats.noise_checked,
        "invalid_reasons": repeats.reasons(),
    }
    spread = {}
    names = [*rows[0]][[*rows[0]].index("started_at") + 1 :]
    cell["void_metrics"] = [name for name in names if repeats.is_void(name)]
    for name in names:
        used = [rows[place][name] for place in repeats.used(name)]
        values = [value for value in used if isinstance(value, int | float)]
        cell[name] = statistics.median(values) if values else None
        spread[name] = [min(values), max(values)] if values else None
    for name, interval in intervals.items():
        cell[name] = interval.value if interval else None
    cell.update(_of_the_cell(intervals))
    for name in (key for m in registry.METRICS if m.pooled == "sum" for key in m.keys):
        # numbers are counts then, not rates: shares of all tokens need their sum
        if spread[name] is not None:
            del spread[name]
        cell[name] = _added([rows[place][name] for place in repeats.used(name)])
    return {**cell, "spread": spread}


def _added(values: Sequence[Any]) -> Any:
    numbers = [value for value in values if isinstance(value, int | float)]
    return sum(numbers) if numbers else work.added(values)


def _of_the_cell(intervals: Mapping[str, Interval | None]) -> dict[str, Any]:
    """What stands in the rows of all repeats: the intervals, and what they rest on."""
    found: dict[str, Any] = {}
    for name, interval in intervals.items():
        found[f"{name}_low"] = interval.low if interval else None
        found[f"{name}_high"] = interval.high if interval else None
        if name in _PAIRED:
            found[f"{name}_repeats"] = interval.repeats if interval else None
            found[f"{name}_more_repeats"] = interval.more_repeats if interval else None
    return found


def _intervals(
    same: Sequence[Member],
    pairs: Sequence[Versus | None],
    natives: Sequence[Versus | None],
    repeats: CellRepeats,
) -> dict[str, Interval | None]:
    """The speed-ups of one cell, each over the repeats whose pairs hold."""

    def over(name: str) -> Interval | None:
        places = repeats.used(name)
        compared = natives if name == "speedup_native" else pairs
        return _interval([same[n] for n in places], [compared[n] for n in places], name)

    return {name: over(name) for name in (*_PAIRED, "speedup_matched", *PARTS)}


def _logs(pair: Versus, name: str) -> Floats | None:
    """(R,) what is pooled under a name."""
    if name in PARTS:
        return None if pair.parts is None else pair.parts[name]
    return pair.matched if name == "speedup_matched" else pair.log_ratios


def _interval(same: Sequence[Member], pairs: Sequence[Versus | None], name: str) -> Interval | None:
    """Pool the repeats of one cell. Against itself a backend's speed-up is 1, without bounds."""
    if _is_with_itself(same, pairs):
        return Interval(1.0, None, None)
    found = _measured(same, pairs, name)
    pooled = length_interval if name == "speedup_length" else speedup_interval
    return None if found is None else pooled(found.logs, found.rows)


def _effects(
    same: Sequence[Member],
    pairs: Sequence[Versus | None],
    natives: Sequence[Versus | None],
    repeats: CellRepeats,
) -> dict[str, Any]:
    """By speed-up: `CellEffects` as JSON has it; none of a backend with itself."""
    found: dict[str, CellEffects | None] = {}
    for name, compared in zip(_PAIRED, (pairs, natives), strict=True):
        places = repeats.used(name)
        own, other = [same[n] for n in places], [compared[n] for n in places]
        measured = None if _is_with_itself(own, other) else _measured(own, other, name)
        if measured is not None:
            workload = same[0].trial.workload
            prompts = workload.checksum or workload.name
            found[name] = cell_effects(measured.logs, measured.repeats, prompts, measured.rows)
    return {name: one.plain() for name, one in found.items() if one is not None}


class _Measured(NamedTuple):
    """Log ratios of one cell: (repeats, requests), with the numbers of both."""

    logs: Floats
    repeats: list[int]
    rows: Ints | None


def _is_with_itself(same: Sequence[Member], pairs: Sequence[Versus | None]) -> bool:
    both = zip(same, pairs, strict=True)
    return any(pair is not None and pair.other is member for member, pair in both)


def _measured(
    same: Sequence[Member], pairs: Sequence[Versus | None], name: str
) -> _Measured | None:
    ids: list[list[str]] = []
    logs: list[Floats] = []
    numbers: list[int] = []
    for member, pair in zip(same, pairs, strict=True):
        found = None if pair is None else _logs(pair, name)
        if found is not None and member.requests is not None:
            ids.append(member.requests.ids)
            logs.append(found)
            numbers.append(member.trial.repeat)
    if not logs:
        return None
    names, matrix = by_request(ids, logs)
    return _Measured(matrix, numbers, data_rows(names))


def _by_variant(members: Sequence[Member]) -> list[list[Member]]:
    found: dict[str, list[Member]] = {}
    for member in members:
        found.setdefault(member.variant, []).append(member)
    return list(found.values())
