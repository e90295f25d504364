"""What ``run --against`` does: one experiment by two versions of the code, in turns."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from harness.cli import display, wiring
from harness.cli.against.checkout import Checkout, same_files
from harness.cli.cells.outcome import raise_refusal, trials_by_status
from harness.cli.folders.run_folder import (
    check_folder,
    check_writing,
    forgetting,
    write_code,
    write_inputs,
)
from harness.cli.pins import OlderTrials, Pins
from harness.cli.progress import SweepDisplay, warn_of_others
from harness.cli.session import open_session
from harness.core.closure import ROOT
from harness.core.errors import UserError, as_argument
from harness.core.files import only_writer
from harness.core.nouns import Trial
from harness.experiment.config import Experiment
from harness.measure.machine.environment import environment, fingerprint
from harness.measure.machine.others import OthersWatch
from harness.measure.sweep import SweepEvent, SweepResult
from harness.measure.versions.paired import Side, run_paired
from results.store.folder import Store

BASE, NEW = "base", "new"
"""The two folders of a paired run; the gate's words."""


def run_against(
    experiment: Experiment,
    other: Checkout,
    trials: Sequence[Trial],
    directory: Path,
    *,
    fresh: bool = False,
    dry_run: bool = False,
) -> SweepResult | None:
    """Run `trials` of a resolved experiment here and by another version, each pair of trials at one
    time, into `directory`/base (the other) and `directory`/new; None for a dry run.

    A disturbed pair is not measured again. Raises `UserError` for a folder that is something else,
    and for an experiment on a bundled model that is another one there.
    """
    _check_place(directory)
    _check_models(experiment, other)
    pinned: dict[str, Pins | Checkout] = {BASE: other, NEW: Pins()}
    machines = {BASE: other.environment, NEW: environment()}
    sides = {
        name: Side(
            name,
            Store(directory / name),
            machine,
            fingerprint(machine),
            pinned[name].of,
            other.version if name == BASE else None,
            pinned[name].edited,
        )
        for name, machine in machines.items()
    }
    stores = {name: Store(directory / name) for name in sides}
    if dry_run:
        for store in stores.values():
            check_writing(store)
        display.print_plan(trials, lambda trial: _note(trial, list(sides.values())))
        print(f"each by two versions: {other.version.root} ({BASE}) and {ROOT} ({NEW})")
        return None
    watch = OthersWatch()
    with contextlib.ExitStack() as held:
        for name, store in stores.items():
            held.enter_context(only_writer(directory / name))
            held.enter_context(forgetting(store, fresh))
            write_inputs(store, experiment, False)
        warn_of_others(watch.share())
        return _run(experiment, trials, sides, stores, pinned, directory)


def _run(
    experiment: Experiment,
    trials: Sequence[Trial],
    sides: dict[str, Side],
    stores: dict[str, Store],
    pinned: dict[str, Pins | Checkout],
    directory: Path,
) -> SweepResult:
    names = {trial.backend for trial in trials}
    older: dict[str, OlderTrials] = {}
    for name, pins in pinned.items():
        older[name] = OlderTrials(stores[name], sides[name].environment, names, pins)
        older[name].drop_replaced()
        write_code(stores[name], {pins.of(trial): pins.parts(trial) for trial in trials})
    with SweepDisplay() as progress:

        def told(event: SweepEvent) -> None:
            progress.show(event)
            if event.record is not None and event.record.status == "ok":
                older[event.side].drop(event.record.trial)

        return run_paired(
            trials,
            (sides[BASE], sides[NEW]),
            open_session,
            time_limit_s=experiment.time_limit_s,
            events=told,
            log_dir=directory / "logs",
            weight_bytes=wiring.weight_bytes,
        )


def _check_place(directory: Path) -> None:
    for name in (BASE, NEW):
        check_folder(directory / name)
    if (directory / "experiment.yaml").exists():
        raise UserError(
            f"{directory}: a run of one version; '--against' makes a folder with two runs, name "
            "another --out"
        )


def _check_models(experiment: Experiment, other: Checkout) -> None:
    """A bundled model comes with the code: it has to be the same in both."""
    for model in experiment.models:
        folder = wiring.model_folder(model).resolve()
        if folder.is_relative_to(ROOT) and not same_files(
            folder, other.version.root / folder.relative_to(ROOT)
        ):
            raise UserError(
                f"--against: the bundled model '{model.name}' is another one in "
                f"{other.version.root}; expected a model that both versions have, by its path"
            )


def _note(trial: Trial, sides: Sequence[Side]) -> str:
    return "stored" if all(side.has(trial) for side in sides) else ""


def tell(result: SweepResult, directory: Path, to: TextIO) -> None:
    """Say how a paired run ended. Raises `UserError` where all of it was refused."""
    raise_refusal(result)
    places = f"{directory}/{BASE} and /{NEW}"
    print(f"{trials_by_status(result)}; results in {places}", file=to)


def next_command(directory: Path) -> str:
    """What to do with a paired run."""
    base, new = (as_argument(directory / name) for name in (BASE, NEW))
    return f"next: decodebench compare {base} {new}"
