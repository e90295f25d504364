"""Who gains from drafts and who loses, over the cells that "Which one to run" rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.cells import Cell, Overview
from reports.numbers import ratio, significant
from reports.words.drafts import Drafting, engine
from reports.words.findings import span
from reports.words.ranking.races import common_scopes, races
from reports.words.speed import Speed, speed

_MOST = 4
"""Variants, or workloads, that a sentence names."""


def sentences(seen: Overview, found: Sequence[Drafting]) -> list[str]:
    """For each load (and model) and engine, who gains from drafts and who loses, over the workloads
    on which all that are ranked there are sound; nothing of those whose interval holds 1. Behind it
    who made none: what was slow there was not for drafts."""
    return [
        text
        for condition in dict.fromkeys(one.cell.condition for one in found)
        for name in dict.fromkeys(engine(one.cell) for one in found)
        for own in [[o for o in found if o.cell.condition == condition and engine(o.cell) == name]]
        for text in (
            *_both(condition, own, [c for c in seen.cells if c.condition == condition]),
            *_idle(condition, [one for one in own if not one.drafted]),
        )
    ]


def _idle(condition: str, own: Sequence[Drafting]) -> Iterator[str]:
    told: dict[str, list[Drafting]] = {}
    for one in own:
        told.setdefault(one.cell.variant.label, []).append(one)
    if told:
        names = "; ".join(f"{name} on {', '.join(_names(same))}" for name, same in told.items())
        yield f"Under {condition} no drafts were made by {names}."


def _both(condition: str, own: Sequence[Drafting], cells: Sequence[Cell]) -> Iterator[str]:
    over = next((f"decode speed over {o.plain.variant.label}'s" for o in own if o.plain), "")
    pooled = list(_pooled(own, cells))
    for gains, words in ((True, "bring more than they cost"), (False, "cost more than they bring")):
        told = [
            (one, found) for one, found in pooled if (found.is_faster if gains else found.is_slower)
        ]
        if told:
            told.sort(key=lambda pair: pair[1].value, reverse=gains)
            every = len({one.cell.workload for one in own})
            listed = _listed(told, every)
            yield f"Under {condition} these drafts {words} ({over}): {listed}."


def _pooled(
    own: Sequence[Drafting], cells: Sequence[Cell]
) -> Iterator[tuple[Sequence[Drafting], Speed]]:
    """The cells of each variant that enter, with their speed-up."""
    for index in dict.fromkeys(one.cell.variant.index for one in own):
        told = [one for one in own if one.measured and one.drafted]
        mine = [one for one in told if one.cell.variant.index == index]
        if not mine:
            continue
        common = _common(mine, own, cells)
        same = [one for one in mine if one.holds and one.cell.workload in common]
        found = speed([one.cell for one in same], mine[0].metric)
        if found is not None:
            yield same, found


def _common(mine: Sequence[Drafting], own: Sequence[Drafting], cells: Sequence[Cell]) -> set[str]:
    """The workloads on which all are sound with whom the page ranks a variant; replays, which it
    does not rank, with each other."""
    first = mine[0]
    if not first.cell.variant.is_replay:
        real = [cell for cell in cells if not cell.variant.is_replay]
        present = list({cell.variant.index: cell.variant for cell in real}.values())
        if any(variant.is_reference for variant in present):
            for race in races(real, present):
                rivals = {v.index: [c for c in real if c.variant is v] for v in race.rivals}
                if first.cell.variant.index in rivals:
                    return {workload for workload, *_ in common_scopes(rivals, race.speedup)}
    groups: dict[int, list[Cell]] = {}
    for one in own:
        if one.metric == first.metric:
            groups.setdefault(one.cell.variant.index, []).append(one.cell)
    return {workload for workload, *_ in common_scopes(groups, first.metric)}


def _listed(told: Sequence[tuple[Sequence[Drafting], Speed]], every: int) -> str:
    """Each variant with its speed-up over the cells that it has here, of so many workloads."""
    where = [_workloads(same, every) for same, _ in told]
    is_said_once = len(told) > 1 and len({*where}) == 1 and len(told[0][0]) > 1
    rows = [
        f"{_gain(same, found)}{'' if is_said_once else f' {place}'}{_why(same)}"
        for (same, found), place in zip(told[:_MOST], where[:_MOST], strict=True)
    ]
    more = [f"and {len(told) - _MOST} more in the table"] * (len(told) > _MOST)
    return "; ".join([*rows, *more]) + f", {where[0]}" * is_said_once


def _gain(same: Sequence[Drafting], pooled: Speed) -> str:
    variant = same[0].cell.variant
    said = f"{variant.label} ({variant.provenance})"
    return f"{ratio(pooled.value)}× {pooled.interval} with {said}"


def _workloads(same: Sequence[Drafting], every: int) -> str:
    names = _names(same)
    if len(names) > 2 and len(names) == every:
        return f"on average over all {every} workloads"
    if len(names) > _MOST:
        return f"on average over {len(names)} of {every} workloads"
    if len(names) == 1:
        return f"on {names[0]}"
    return f"on average over {', '.join(names[:-1])} and {names[-1]}"


def _names(same: Sequence[Drafting]) -> list[str]:
    """The workloads; the model is said with the load."""
    return [one.cell.workload.removesuffix(f" on {one.cell.model}") for one in same]


def _why(same: Sequence[Drafting]) -> str:
    """What a step brings, and what it has to bring to be as fast as plain decoding."""
    known = [
        (tokens, tokens / one.measured)
        for one in same
        if (tokens := one.cell.value("tokens_per_step")) is not None and one.measured
    ]
    if len(known) < len(same):
        return ""
    brought, needed = (span(numbers, significant) for numbers in zip(*known, strict=True))
    return f" ({brought} tokens a step, {needed} needed)"
