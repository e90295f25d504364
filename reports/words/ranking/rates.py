"""Which system sustains the higher rate, as far as intervals say so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from reports.numbers import interval, significant
from reports.sections.searched import SearchedSystem, SweptCurve

System = TypeVar("System", SearchedSystem, SweptCurve)


def ranking(searched: Sequence[SearchedSystem], *, named: bool = False) -> Iterator[str]:
    """One sentence about the systems of one workload, which is `named` first where there are
    several; none for a system alone. Replays are ranked among themselves. An order is claimed only
    between systems whose intervals do not overlap; one that missed no rate has none."""
    if len(kinds := by_decisions(searched)) > 1:
        for some in kinds:
            yield from ranking(some, named=named)
        return
    found = [one for one in searched if one.found.rate is not None]
    if len(searched) < 2:
        return
    where = f"{searched[0].place}: " if named else ""
    open_ended = [one for one in searched if one.found.is_at_least]
    lost = [one.cell.variant.label for one in searched if one.found.sustained is None]
    end = f" {_at_least(open_ended)}" if open_ended else ""
    end += f" No rate was found of {', '.join(lost)}." if lost else ""
    if not found and not open_ended:
        return  # the table says why
    doubtful = [one.cell.variant.label for one in (*found, *open_ended) if one.not_valid]
    if doubtful:
        end += f" Not to be relied on: trials of {', '.join(doubtful)} are not valid."
    tiers = _tiers(found)
    if not found:
        yield f"{where}No order can be claimed, since no limit was found.{end}"
    elif len(found) == 1 and open_ended:
        yield f"{where}A limit was found of {_names(found)} alone.{end}"
    elif len(found) == 1:
        yield f"{where}Only {_names(found)} was found to sustain a rate.{end}"
    elif len(tiers) == 1:
        names, but = _names(tiers[0]), _apart(tiers[0])
        yield f"{where}The intervals overlap, so no order can be claimed among {names}{but}.{end}"
    else:
        rest = "; which in turn more than ".join(map(_tier, tiers[1:]))
        yield f"{where}{_tier(tiers[0])} sustained more than {rest}.{end}"


def by_decisions(systems: Sequence[System]) -> list[list[System]]:
    """Those that decided for themselves, and those whose decisions were replayed, as far as there
    are any."""
    real = [one for one in systems if not one.cell.variant.is_replay]
    replays = [one for one in systems if one.cell.variant.is_replay]
    return [some for some in (real, replays) if some]


def _tiers(found: Sequence[SearchedSystem]) -> list[list[SearchedSystem]]:
    """From the highest rate down; every interval of one lies above every interval of the next."""
    ordered = sorted(found, key=lambda one: one.found.rate or 0.0, reverse=True)
    tiers: list[list[SearchedSystem]] = []
    for place, one in enumerate(ordered):
        least = min((o.found.low or 0.0 for o in ordered[:place]), default=0.0)
        most = max(o.found.high or 0.0 for o in ordered[place:])
        if place == 0 or least > most:
            tiers.append([])
        tiers[-1].append(one)
    return tiers


def _tier(tier: Sequence[SearchedSystem]) -> str:
    if len(tier) == 1:
        return _names(tier)
    return (
        f"{_names(tier)} (among which no order can be claimed: the intervals overlap{_apart(tier)})"
    )


def _apart(tier: Sequence[SearchedSystem]) -> str:
    """Of systems that overlap in all, the pairs that do not."""
    pairs = [
        f"{a.cell.variant.label} more than {b.cell.variant.label}"
        for a in tier
        for b in tier
        if (a.found.low or 0.0) > (b.found.high or 0.0)
    ]
    return f", except {', '.join(pairs)}" if pairs else ""


def _names(tier: Sequence[SearchedSystem]) -> str:
    return ", ".join(f"{one.cell.variant.label} ({_rate(one)})" for one in tier)


def _at_least(some: Sequence[SearchedSystem]) -> str:
    told = (
        f"{o.cell.variant.label} (at least {significant(o.found.low or 0.0)}/s; {o.found.ended})"
        for o in some
    )
    return f"No limit was seen of {', '.join(told)}."


def _rate(one: SearchedSystem) -> str:
    rate, low, high = one.found.rate or 0.0, one.found.low or 0.0, one.found.high or 0.0
    return f"{significant(rate)}/s {interval(low, high, significant)}"
