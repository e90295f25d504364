"""What runs tell of their cells, and what of it are trials of another run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from results.compare.gate.reduced import CellName


@dataclass(frozen=True, slots=True)
class RunMark:
    """One run, for naming where a change is."""

    folder: Path
    started: str
    """Of the first of its own trials, as stored (ISO 8601, UTC)."""
    commit: str | None
    """The harness's own in that trial, "+" for a checkout with changes."""


class Measurement(NamedTuple):
    """One trial as it was measured once, by what runs and files of record both tell of it."""

    cell: CellName
    """Plain: entries may have been added to the experiment since a file of record was made."""
    work: tuple[Any, ...]
    repeat: int
    fingerprint: str | None
    invocation: str | None
    """Two machines begin the same trial in one second when one clock starts both."""
    started: str
    commit: str | None


@dataclass(frozen=True, slots=True)
class Observation:
    """One cell of one run."""

    cell: CellName
    same: str
    """Equal for what may stand in one series: the machine and the work, not versions."""
    host: str
    """The machine's part of `same`."""
    machine: str
    """For people: machines may share it."""
    versions: Mapping[str, str]
    """Of the backend and of what it builds on."""
    values: Mapping[str, float]
    """By names of `show --json`; what is defined."""
    doubted: Collection[str]
    """Names of those that are not sound."""
    trials: frozenset[Measurement]
    """By which a copy of a run is known."""


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """One run."""

    folder: Path
    cells: Sequence[Observation]
    copied: Sequence[Observation] = ()
    """Cells that it has as well, as trials of another run: its experiment still runs them."""

    @property
    def trials(self) -> Set[Measurement]:
        """Of all its cells."""
        return {trial for cell in self.cells for trial in cell.trials}

    @property
    def mark(self) -> RunMark:
        """It has a cell."""
        first = min(self.trials, key=lambda one: (one.started, one.commit or ""))
        return RunMark(self.folder, first.started, first.commit)


def each_once(found: Iterable[ObservedRun]) -> tuple[list[ObservedRun], list[str]]:
    """The runs, the oldest first, each without the cells that another one has trials of, and dated
    by the others; and sentences on what is left out. Of a run and a part of it the run is kept,
    else the one that was done first: what it shares with later ones they did not run again."""
    runs = [(one, one.trials) for one in found if one.cells]

    def in_order(run: tuple[ObservedRun, Set[Measurement]]) -> tuple[bool, int, str, str]:
        one, own = run
        is_part = any(own < others for _, others in runs)
        newest = max(trial.started for trial in own)
        return is_part, -len(own) * is_part, newest, str(one.folder)

    kept: list[ObservedRun] = []
    left_out: list[str] = []
    seen: dict[Measurement, Path] = {}
    for one, _ in sorted(runs, key=in_order):
        cells = [cell for cell in one.cells if seen.keys().isdisjoint(cell.trials)]
        copied = [cell for cell in one.cells if not seen.keys().isdisjoint(cell.trials)]
        if cells:
            kept.append(replace(one, cells=cells, copied=copied))
        if less := len(copied):
            folders = sorted({str(seen[trial]) for trial in one.trials & seen.keys()})
            some = f"{less} of {len(one.cells)} cells of " * bool(cells)
            left_out.append(f"left out: {some}{one.folder} holds trials of {', '.join(folders)}")
        for cell in cells:
            seen.update(dict.fromkeys(cell.trials, one.folder))
    return sorted(kept, key=lambda one: (one.mark.started, str(one.folder))), left_out
