"""The series of each metric of each cell over runs, in the order in which they were started."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import results
from harness.core.errors import UserError, nearest
from harness.core.nouns import canonical_json
from results import registry
from results.compare.gate.identity import FIELDS, PACKAGES, identity
from results.compare.gate.reduced import CellName, cell_name
from results.compare.quality import without_quality
from results.goodput.stored import without_probes
from results.history.change_points import FEWEST, ChangePoint, change_points, fewest_points
from results.registry.metric import Metric
from results.run import Run
from results.store.records import StoredTrial

METRICS = (
    *("output_tok_per_s", "ttft_s_p50", "tpot_s_p50"),
    *(metric.name for metric in registry.scores()),
)
"""Unless others are asked for; of these what a run has."""


@dataclass(frozen=True, slots=True)
class RunMark:
    """One run, for naming where a change is."""

    folder: Path
    started: str
    """Of its first trial, as stored (ISO 8601, UTC)."""
    commit: str | None
    """The harness's own, "+" for a checkout with changes."""


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
    metric: Metric
    key: str
    """The metric's name with the percentile: ``tpot_s_p50``."""
    machine: str
    points: list[HistoryPoint]
    doubted: list[HistoryPoint]
    """Whose trials are not sound: no change is looked for in them."""


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

    @property
    def fewest(self) -> int:
        """Points that a series needs."""
        return fewest_points(self.level)


def history(
    folders: Iterable[Path],
    metrics: Collection[str] = (),
    significance: float = 0.05,
    *,
    unsound: bool = False,
) -> History:
    """Every series of these runs, and the changes in them.

    Args:
        folders: of runs, or of folders of runs.
        metrics: names of `show --json`; `METRICS` without any.
        significance: the chance that a history without changes has one: shared out among the
            series that are long enough (Bonferroni).
        unsound: also of trials that are not sound.

    Raises:
        UserError: for a folder without runs, an unknown metric, fewer than two runs.
    """
    wanted = _wanted(metrics)
    marked = sorted(((_mark(run), run) for run in _runs(folders)), key=_started)
    if len(marked) < 2:
        raise UserError(f"history: {len(marked)} run with trials; expected at least 2")
    found = _series(marked, wanted, unsound)
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
    return History([mark for mark, _ in marked], found, changes, significance, level)


def _wanted(names: Collection[str]) -> list[tuple[str, Metric]]:
    known = {key: metric for metric in registry.METRICS for key in metric.keys}
    for name in names:
        if name not in known:
            raise UserError(f"--metric: unknown metric '{name}'; {nearest(name, known)}")
    return [(name, known[name]) for name in dict.fromkeys(names or METRICS)]


def _runs(folders: Iterable[Path]) -> Iterator[Run]:
    seen: set[Path] = set()
    for folder in folders:
        own = [folder]
        if folder.is_dir() and not (folder / "experiment.yaml").exists():
            own = sorted(path.parent for path in folder.glob("*/experiment.yaml")) or [folder]
        for path in own:
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            run = without_quality(without_probes(results.load(path)))
            if run.stored:
                yield run


def _mark(run: Run) -> RunMark:
    first = min((stored.record for stored in run.stored), key=lambda record: record.started_at)
    return RunMark(run.path, first.started_at, first.environment.get("commit"))


def _started(marked: tuple[RunMark, Run]) -> tuple[str, str]:
    return marked[0].started, str(marked[0].folder)


def _series(
    marked: Sequence[tuple[RunMark, Run]], wanted: Sequence[tuple[str, Metric]], unsound: bool
) -> list[MetricSeries]:
    found: dict[tuple[str, CellName, str], MetricSeries] = {}
    for mark, run in marked:
        stored = {one.record.key: one for one in run.stored}
        for cell in run.evaluated["cells"]:
            one = stored[cell["keys"][0]]
            parts = run.store.read_code(str(one.record.environment.get("code"))) or {}
            name, same = cell_name(one.record.trial), _same(one, parts)
            for key, metric in wanted:
                value = cell.get(key)
                if not isinstance(value, int | float) or not math.isfinite(value):
                    continue
                series = found.setdefault(
                    (key, name, same), MetricSeries(name, metric, key, _machine(one), [], [])
                )
                point = HistoryPoint(mark, float(value), _versions(one))
                believed = unsound or _holds(cell, key)
                (series.points if believed else series.doubted).append(point)
    return list(found.values())


def _holds(cell: Mapping[str, Any], key: str) -> bool:
    """Whether a metric of a cell may be believed (see `reports.cells.Cell.holds`)."""
    void = cell["void_metrics"]
    return key not in void and (cell["valid"] or len(void) > 0)


def _same(stored: StoredTrial, parts: Mapping[str, str]) -> str:
    """What has to be equal for values to be one series: the machine and the work, not versions."""
    fields = identity(stored.record.trial, stored.record.environment, parts)
    kept = {name: fields[name] for name in FIELDS if not name.startswith("packages.")}
    return canonical_json({**kept, "python": None})


def _machine(stored: StoredTrial) -> str:
    environment = stored.record.environment
    gpus = environment.get("gpus") or []
    names = [str(gpu.get("name", gpu)) if isinstance(gpu, dict) else str(gpu) for gpu in gpus]
    return ", ".join(names) or f"{environment.get('cpu')}, {environment.get('cores')} cores"


def _versions(stored: StoredTrial) -> dict[str, str]:
    record = stored.record
    packages = record.environment.get("packages") or {}
    found = {name: str(packages[name]) for name in PACKAGES if packages.get(name)}
    if python := record.environment.get("python"):
        found["python"] = str(python)
    if record.backend is not None and record.backend.version:
        found.setdefault(record.trial.backend, record.backend.version)
    return found


def _level(found: Sequence[MetricSeries], significance: float) -> float:
    """`significance` shared out among the series in which there could be a change."""
    enough = sum(len(series.points) >= 2 * FEWEST for series in found)
    return significance / max(enough, 1)
