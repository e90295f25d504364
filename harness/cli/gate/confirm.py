"""``compare --confirm``: cells that did not pass are run once more, both versions in turns."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

import results
from harness.cli import wiring
from harness.cli.against.checkout import find_checkout
from harness.cli.against.paired_run import BASE, NEW, run_against, tell
from harness.core.errors import UserError
from harness.core.nouns import Trial, to_json
from harness.experiment.config import Experiment, load_experiment
from harness.measure.machine.environment import environment
from results.compare.gate.decision import Decision
from results.compare.gate.extraction import reduce_run
from results.compare.gate.reduced import CellName, ReducedRun, cell_name
from results.run import Run

FOLDER = "confirm"
"""Below NEW."""


def confirm(
    decision: Decision,
    sides: tuple[ReducedRun, ReducedRun],
    new: Path,
    against: str | None,
    names: Iterable[str],
) -> tuple[ReducedRun, ReducedRun, Collection[CellName]]:
    """Run the cells that `decision` does not pass again, and return both sides with these cells'
    trials in the place of the former ones, and which cells that are.

    The experiment is NEW's, this code runs as NEW, and BASE's side is run by `against`, else by the
    commit that BASE's trials name. What was confirmed before is not run again, and what NEW's
    experiment does not have goes on missing. Raises `UserError` where there is nothing to run it
    from.
    """
    experiment_file = new / "experiment.yaml"
    if not experiment_file.is_file():
        raise UserError(f"--confirm: {new}: expected a run folder, with its experiment.yaml")
    stored = load_experiment(experiment_file, wiring.known())
    experiment = wiring.resolve(stored, [trial for _, trial in _doubted(stored, decision)])
    named = _doubted(experiment, decision)
    trials, cells = [trial for _, trial in named], {cell for cell, _ in named}
    if missing := decision.doubtful - decision.lacking - cells:
        raise UserError(
            f"--confirm: {experiment_file} does not have the cell {min(missing).label()}"
        )
    if not cells:
        return *sides, cells
    _check_here(new)
    other = find_checkout(against if against is not None else _commit(sides[0]))
    print(f"--confirm: {_cells(len(cells))} once more, in turns", file=sys.stderr)
    result = run_against(experiment, other, trials, new / FOLDER)
    assert result is not None
    tell(result, new / FOLDER, sys.stderr)
    fresh = [reduce_run(_only(new / FOLDER / name, cells), names) for name in (BASE, NEW)]
    return _exchanged(sides[0], fresh[0], cells), _exchanged(sides[1], fresh[1], cells), cells


def confirmed(decision: Decision, before: Decision, cells: Collection[CellName]) -> Decision:
    """The decision after `confirm`, which says what it was of these cells before."""
    counts = Counter(
        row.verdict for row in before.rows if row.verdict != "pass" and row.cell in cells
    )
    told = [f"{count} {verdict}" for verdict, count in sorted(counts.items())]
    told += [f"{len(lacking)} missing"] if (lacking := before.lacking.intersection(cells)) else []
    note = f"run once more, side by side: {_cells(len(cells))}; before: {', '.join(told)}"
    return replace(decision, notes=[*decision.notes, note])


def _doubted(experiment: Experiment, decision: Decision) -> list[tuple[CellName, Trial]]:
    """The trials of the cells that `decision` does not pass."""
    asked = to_json(experiment)
    named = ((cell_name(trial, asked), trial) for trial in experiment.trials())
    return [(cell, trial) for cell, trial in named if cell in decision.doubtful]


def _only(folder: Path, cells: Collection[CellName]) -> Run:
    """A run as if no other cells were stored: those of a former call may be half done."""
    run = results.load(folder)
    others = {
        stored.record.key
        for stored in run.stored
        if cell_name(stored.record.trial, run.experiment) not in cells
    }
    return run.without(others)


def _exchanged(run: ReducedRun, fresh: ReducedRun, cells: Collection[CellName]) -> ReducedRun:
    kept = [trial for trial in run.trials if trial.cell not in cells]
    return ReducedRun(run.where, [*kept, *fresh.trials])


def _commit(base: ReducedRun) -> str:
    """The one that ran BASE."""
    hint = "expected '--against GITREF|DIR' to say which code that was"
    found = sorted({trial.commit for trial in base.trials if trial.commit})
    if len(found) != 1:
        told = ", ".join(found) or "no commit"
        raise UserError(f"--confirm: {base.where}: trials of {told}; {hint}")
    (commit,) = found
    if commit.endswith("+"):
        changed = f"run from {commit[:-1]} with changed files"
        raise UserError(f"--confirm: {base.where}: {changed}; {hint}")
    return commit


def _check_here(new: Path) -> None:
    """NEW has to be of the code that would run as NEW."""
    here = environment()["commit"]
    then = _commits(new)
    if here and then and {str(here).rstrip("+")} != {commit.rstrip("+") for commit in then}:
        raise UserError(
            f"--confirm: {new}: run from {', '.join(then)}, but this is {here}; expected it to be "
            "called from NEW's own checkout"
        )


def _commits(run: Path) -> list[str]:
    stored = results.load(run).stored
    return sorted({str(c) for one in stored if (c := one.record.environment.get("commit"))})


def _cells(count: int) -> str:
    return f"{count} {'cell' if count == 1 else 'cells'}"
