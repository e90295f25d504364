"""The series of each metric of each cell over runs, in the order in which they were started."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UserError, nearest
from results import registry
from results.compare.gate.reduced import CellName, ReducedRun
from results.history.change_points import FEWEST, ChangePoint, change_points, fewest_points
from results.history.copies import Observation, ObservedRun, RunMark
from results.history.observed import observed_runs
from results.registry.metric import Metric

_TOKENS, _LABELS = "output_tok_per_s", "request_per_s"
METRICS = (
    *(_TOKENS, _LABELS, "ttft_s_p50", "tpot_s_p50"),
    *(metric.name for metric in registry.scores()),
)
"""Unless others are asked for; of these what a run has, and requests per second only of labels,
whose throughput they are under a closed load."""


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """A cell's value in one run."""

    mark: RunMark
    value: float
    versions: Mapping[str, str]
    """Of the backend and of what it builds on."""


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """A metric of one cell, on one machine and for the same work."""

    cell: CellName
    """As its newest run names it."""
    metric: Metric
    key: str
    """The metric's name with the percentile: ``tpot_s_p50``."""
    host: str
    """Which machine, where `machine` is what people call it."""
    machine: str
    points: list[HistoryPoint]
    doubted: list[HistoryPoint]
    """Whose trials are not sound: no change is looked for in them."""
    tried: Set[RunMark]
    """The runs that tried the cell's work, though all trials of it failed."""
    copied: Set[RunMark]
    """Those whose trials of it are another run's."""

    @property
    def marks(self) -> Set[RunMark]:
        """The runs whose experiment has it."""
        return self.tried | self.copied


@dataclass(frozen=True, slots=True)
class FoundChange:
    """A step in a series."""

    series: MetricSeries
    point: ChangePoint

    @property
    def ratio(self) -> float | None:
        """After over before; None where nothing was before."""
        return self.point.after / self.point.before if self.point.before else None

    @property
    def verdict(self) -> str:
        """Better, worse or changed."""
        better = self.series.metric.better
        if not better:
            return "changed"
        return (
            "better" if (self.point.after > self.point.before) == (better == "larger") else "worse"
        )

    @property
    def between(self) -> tuple[HistoryPoint, HistoryPoint]:
        """The last point before and the first one after."""
        return self.series.points[self.point.place - 1], self.series.points[self.point.place]

    @property
    def versions(self) -> dict[str, tuple[str, str]]:
        """What was of another version after."""
        before, after = (point.versions for point in self.between)
        names = sorted(before.keys() | after.keys())
        pairs = {name: (before.get(name, "none"), after.get(name, "none")) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@dataclass(frozen=True, slots=True)
class History:
    """What `history` found."""

    runs: Sequence[RunMark]
    series: Sequence[MetricSeries]
    changes: Sequence[FoundChange]
    """The latest first."""
    significance: float
    level: float
    """That each series is tested at, so that a history without changes has one at
    `significance`."""
    left_out: Sequence[str] = ()
    """Sentences on runs that could not be read, and on copies."""

    @property
    def now_worse(self) -> list[FoundChange]:
        """Of the series whose last step was for the worse: that one, unless it is no longer run:
        a step of that is nobody's."""
        in_order = sorted(self.changes, key=lambda change: change.point.place)
        last = {id(change.series): change for change in in_order}
        worse = [change for change in last.values() if change.verdict == "worse"]
        held = self._held() if worse else []
        return [change for change in worse if _still_runs(change.series, held)]

    @property
    def fewest(self) -> int:
        """Points that a series needs once all that still run are long enough to be tested: with
        each that comes to be, the level of all falls."""
        held = self._held()
        tested = sum(_is_enough(one) or _still_runs(one, held) for one in self.series)
        return fewest_points(self.significance / max(tested, 1))

    @property
    def short(self) -> list[MetricSeries]:
        """The series that are too short for a clear step to be found for certain."""
        least = fewest_points(self.level)
        return [one for one in self.series if len(one.points) < least]

    def _held(self) -> list[tuple[RunMark, set[tuple[str, CellName]]]]:
        """The cells of each run, with their machines."""
        cells: dict[RunMark, set[tuple[str, CellName]]] = {}
        for one in self.series:
            for mark in one.marks:
                cells.setdefault(mark, set()).add((one.host, one.cell.plain))
        return [(mark, cells[mark]) for mark in self.runs if mark in cells]


def _is_enough(series: MetricSeries) -> bool:
    """Whether there could be a change in it."""
    return len(series.points) >= 2 * FEWEST


def _still_runs(
    series: MetricSeries, held: Sequence[tuple[RunMark, set[tuple[str, CellName]]]]
) -> bool:
    """Whether no later run shows that its experiment no longer has it: one on its machine with
    some of the cells of its runs. Another experiment may have some of them too, and all of them as
    other work: one whose runs meanwhile, without the series, are more like the later one.

    Args:
        held: the cells of each run, the oldest first.
    """
    marks = series.marks
    places = [place for place, (mark, _) in enumerate(held) if mark in marks]
    own = [held[place][1] for place in places]
    others = [held[n][1] for n in range(places[0], places[-1]) if n not in set(places)]

    def ends_it(cells: set[tuple[str, CellName]]) -> bool:
        if cells in others:
            return False
        mine = max(_alike(cells, some) for some in own)
        return mine > 0 and mine >= max((_alike(cells, some) for some in others), default=0.0)

    return not any(ends_it(cells) for _, cells in held[places[-1] + 1 :])


def _alike(one: Set[object], other: Set[object]) -> float:
    """The share of what either has that both have."""
    return len(one & other) / len(one | other)


def history(
    folders: Iterable[Path],
    metrics: Collection[str] = (),
    significance: float = 0.05,
    *,
    unsound: bool = False,
    records: Iterable[ReducedRun] = (),
) -> History:
    """Every series of these runs, and the changes in them.

    Args:
        folders: of runs, or of folders of runs and of files of record; or files of record.
        metrics: names of `show --json`; `METRICS` without any.
        significance: the chance that a history without changes has one: shared out among the
            series that are long enough (Bonferroni).
        unsound: also of trials that are not sound.
        records: runs that are read already.

    Raises:
        UserError: for a folder without runs, an unknown metric, fewer than two runs.
    """
    wanted = _wanted(metrics)
    runs, left_out = observed_runs(folders, records, [key for key, _ in wanted])
    if len(runs) < 2:
        told = "".join(f"; {sentence}" for sentence in left_out[:1])
        count = "1 run" if runs else "no run"
        raise UserError(f"history: {count} with trials; expected at least 2{told}")
    found = _series(runs, wanted, unsound, rates=bool(metrics))
    if not found:
        names = ", ".join(key for key, _ in wanted)
        raise UserError(f"history: none of the runs has {names}")
    level = _level(found, significance)
    changes = [
        FoundChange(series, point)
        for series in found
        for point in change_points([point.value for point in series.points], level)
    ]
    changes.sort(key=lambda one: one.between[1].mark.started, reverse=True)
    marks = [run.mark for run in runs]
    return History(marks, found, changes, significance, level, left_out)


def _wanted(names: Collection[str]) -> list[tuple[str, Metric]]:
    known = {key: metric for metric in registry.METRICS for key in metric.keys}
    for name in names:
        if name not in known:
            begin = [key for key in known if key.startswith(name)] if name else []
            # the registry has a metric's median before its other percentiles
            told = f"did you mean '{begin[0]}'?" if begin else nearest(name, known)
            raise UserError(f"--metric: unknown metric '{name}'; {told}")
    return [(name, known[name]) for name in dict.fromkeys(names or METRICS)]


def _series(
    runs: Sequence[ObservedRun],
    wanted: Sequence[tuple[str, Metric]],
    unsound: bool,
    *,
    rates: bool,
) -> list[MetricSeries]:
    """`rates`: also requests per second where they are no cell's throughput."""
    seen: dict[tuple[CellName, str], list[tuple[RunMark, Observation]]] = {}
    copied: dict[tuple[CellName, str], set[RunMark]] = {}
    for run in runs:
        mark = run.mark
        for one in run.cells:
            seen.setdefault((one.cell.plain, one.same), []).append((mark, one))
        for one in run.copied:
            copied.setdefault((one.cell.plain, one.same), set()).add(mark)
    found: list[MetricSeries] = []
    for work, own in seen.items():
        tried, newest = {mark for mark, _ in own}, own[-1][1]
        # a record of before labels had none says 0 tokens
        has_tokens = any(one.values.get(_TOKENS) for _, one in own)
        is_rate = not has_tokens and newest.cell.load.startswith("closed")
        left_out = set() if rates else {_TOKENS if is_rate else _LABELS}
        for key, metric in wanted:
            if key in left_out:
                continue
            points: list[HistoryPoint] = []
            doubted: list[HistoryPoint] = []
            for mark, one in own:
                if key in one.values:
                    believed = unsound or key not in one.doubted
                    point = HistoryPoint(mark, one.values[key], one.versions)
                    (points if believed else doubted).append(point)
            if points or doubted:
                place = newest.cell, metric, key, newest.host, newest.machine
                also = copied.get(work, set())
                found.append(MetricSeries(*place, points, doubted, tried, also))
    return found


def _level(found: Sequence[MetricSeries], significance: float) -> float:
    """`significance` shared out among the series in which there could be a change."""
    return significance / max(sum(map(_is_enough, found)), 1)
