"""The command ``run``: an experiment file to stored trials."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from harness import display, wiring
from harness.config import Experiment, load_experiment
from harness.core import UserError, nearest
from harness.environment import environment, fingerprint
from harness.session import open_session
from harness.sweep import SweepResult, run_sweep
from results.store import Store

RUNS = Path("runs")


def run_experiment(
    file: Path, *, out: Path | None, only: str | None, fresh: bool, dry_run: bool
) -> SweepResult | None:
    """Run what is missing of the experiment in `file`; returns None for a dry run.

    Nothing is written before everything the experiment names has been found and checked.
    Raises `UserError` for bad input and for a disk that does not take the results.
    """
    experiment = load_experiment(file, wiring.known())
    _check_only(only, experiment)
    directory = out if out is not None else RUNS / experiment.name
    _check_folder(directory)
    experiment = wiring.resolve(experiment)
    trials = [trial for trial in experiment.trials() if only in (None, trial.backend)]
    if dry_run:
        display.print_plan(trials)
        return None
    if fresh:
        _forget(directory)
    store = Store(directory)
    _write_inputs(store, experiment)
    machine = environment()
    with display.Progress() as progress:
        result = run_sweep(
            trials,
            store,
            open_session,
            environment=machine,
            fingerprint=fingerprint(machine),
            time_limit_s=experiment.time_limit_s,
            events=progress.show,
            log_dir=directory / "logs",
        )
    _print_outcome(result, directory)
    return result


def _check_only(only: str | None, experiment: Experiment) -> None:
    names = {choice.name for choice in experiment.backends}
    if only is not None and only not in names:
        raise UserError(f"--only: no backend '{only}'; {nearest(only, names)}")


def _check_folder(directory: Path) -> None:
    """Refuse to write into a folder, or over a file, that something else made."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise UserError(f"{directory}: expected a folder for the run, found a file")
    strangers = any(directory.iterdir()) and not (directory / "experiment.yaml").is_file()
    if strangers:
        raise UserError(f"{directory}: not a run folder (no experiment.yaml); name another --out")


def _forget(directory: Path) -> None:
    for name in ("trials", "prompts", "cache", "logs"):
        shutil.rmtree(directory / name, ignore_errors=True)


def _write_inputs(store: Store, experiment: Experiment) -> None:
    """Keep the resolved experiment and every prompt beside the trials."""
    directory = wiring.model_folder(experiment.model)
    try:
        store.write_experiment(experiment.to_yaml())
        missing = [
            t for t in experiment.trials() if not store.has_prompts(str(t.workload.checksum))
        ]
        for rows, checksum in wiring.prompt_rows(missing, directory) if missing else ():
            store.write_prompts(checksum, rows)
    except OSError as error:
        raise UserError(f"{store.path}: cannot be written: {error.strerror or error}") from None


def _print_outcome(result: SweepResult, directory: Path) -> None:
    counts = Counter({"stored": result.stored})
    counts.update({str(status): count for status, count in result.statuses.items()})
    parts = [f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count]
    print(f"trials: {', '.join(parts) or 'none'}; results in {directory}")
