"""What a history comes to, in words."""

from __future__ import annotations

from collections.abc import Iterator

from reports.numbers import counted, significant
from reports.text import visible
from results.history.copies import RunMark
from results.history.series import FoundChange, History, MetricSeries


def lead(found: History) -> str:
    """How much was looked at, how it was tested, and what came of it."""
    doubted = sum(len(one.doubted) for one in found.series)
    left_out = f"; {counted(doubted, 'value')} of trials that are not sound left out"
    return (
        f"{counted(len(found.changes), 'change')} in "
        f"{counted(len(found.series), 'series', 'series')} "
        f"over {counted(len(found.runs), 'run')} (E-divisive with permutations; "
        f"{found.significance:.0%} for any change where there is none, shared out among the "
        f"series){left_out * bool(doubted)}"
    )


def remarks(found: History) -> Iterator[str]:
    """What could not be looked at."""
    yield from found.left_out
    yield from _lost(found)
    if short := found.short:
        longest = max(len(one.points) for one in short)
        yield (
            f"{len(short)} of {counted(len(found.series), 'series', 'series')} may miss a change: "
            f"at this significance even a clear step is sure to be found from {found.fewest} runs "
            f"on, the longest has {longest}"
        )


def _lost(found: History) -> Iterator[str]:
    """Of each cell that failed when it ran last, what it has no value of."""
    places = {mark: place for place, mark in enumerate(found.runs)}
    lost: dict[tuple[str, RunMark], list[str]] = {}
    for one in found.series:
        newest = max(one.tried, key=places.__getitem__)
        if newest not in {point.mark for point in (*one.points, *one.doubted)}:
            lost.setdefault((series_name(one), newest), []).append(one.key)
    for (name, newest), keys in lost.items():
        yield f"{name}: no {', '.join(keys)} in its newest run, {run_name(newest)}"


def series_name(one: MetricSeries) -> str:
    """The cell of a series."""
    return visible(one.cell.label())


def amount(one: MetricSeries, value: float, digits: int = 3) -> str:
    """A value with its unit, seconds in milliseconds."""
    if one.metric.unit == "s":
        return f"{significant(1000 * value, digits)} ms"
    return f"{significant(value, digits)} {one.metric.unit}".strip()


def step(one: FoundChange) -> str:
    """How large a change is, and whether it is for the better: ``+5.0%, worse``."""
    size = f"{one.ratio - 1:+.1%}" if one.ratio is not None else "from 0"
    return f"{size}, {one.verdict}"


def run_name(mark: RunMark) -> str:
    """A run, by what tells it from others: its commit, else when it was."""
    return visible(mark.commit or mark.started)


def versions(one: FoundChange) -> str:
    """What else was new: ``vllm 0.31 → 0.32``."""
    return ", ".join(f"{name} {old} → {new}" for name, (old, new) in one.versions.items())


def change_cells(one: FoundChange) -> tuple[str, ...]:
    """A change as texts: metric, cell, before, after, step, between, versions."""
    before, after = one.between
    return (
        one.series.key,
        series_name(one.series),
        amount(one.series, one.point.before),
        amount(one.series, one.point.after),
        step(one),
        f"{run_name(before.mark)} .. {run_name(after.mark)}",
        visible(versions(one)) or "–",
    )
