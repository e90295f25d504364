"""The command ``run``: an experiment file to stored trials."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from harness.cli import doctor, wiring
from harness.cli.asked.beforehand import (
    refuse_other_chats,
    refuse_unscorable,
    replayed,
    too_long,
    uncompared,
)
from harness.cli.asked.dry_run import tell_plan
from harness.cli.cells.outcome import raise_refusal, tell_results, trials_by_status
from harness.cli.cluster.place import Cluster
from harness.cli.cluster.sweep import sweep_cluster
from harness.cli.folders.run_folder import (
    check_folder,
    forgetting,
    write_code,
    write_inputs,
)
from harness.cli.pins import OlderTrials, Pins, of_other_settings, with_failures
from harness.cli.progress import SweepDisplay, warn_of_others
from harness.cli.quality.more_prompts import quality_trials
from harness.cli.repeats.measured_again import measure_again
from harness.cli.repeats.only import Wanted, named_by, one_load
from harness.cli.session import open_session
from harness.core.errors import UserError, elsewhere
from harness.core.files import MIB, only_writer
from harness.core.nouns import Model, Trial
from harness.experiment.config import Experiment, load_experiment
from harness.measure import again
from harness.measure.fleet import Fleet, Stay
from harness.measure.machine.environment import environment, fingerprint
from harness.measure.machine.others import OthersWatch
from harness.measure.sweep import SweepEvent, SweepResult, run_sweep
from results.store.folder import Store

RUNS = Path("runs")
OF_SIZE_BYTES = 64 * MIB
"""Smaller weights lie in a processor's cache: their steps tell little of larger models."""


def run_experiment(
    file: Path,
    *,
    out: Path | None,
    only: str | None,
    fresh: bool,
    dry_run: bool,
    shapes: Sequence[str] = (),
    again_share: float = again.SHARE,
    cluster: Cluster | None = None,
    against: str | None = None,
    retry_failures: bool = False,
) -> SweepResult | None:
    """Run what is missing of the experiment in `file`; returns None for a dry run, which makes
    every check that comes before an engine is loaded. `shapes` stand in for the file's models.

    Of the time that all this takes, at most `again_share` more goes into measuring disturbed trials
    once more, which `only` never does: it measures one side of each pair. `cluster`: where trials
    run; None: here. `against`: another version of the code, which runs the same beside this one
    (`harness.cli.against`). `retry_failures`: of what is stored, trials of which requests failed
    run again.

    Nothing is written before everything the experiment names has been found and checked.
    Raises `UserError` for bad input and for a disk that does not take the results.
    """
    with elsewhere(cluster is not None):
        experiment = _with_shapes(load_experiment(file, wiring.known()), shapes)
    if against is not None:
        if cluster is not None:
            raise UserError("--against: expected --executor local: both versions share a machine")
        if retry_failures:
            raise UserError("--against: both versions run a trial together; no --retry-failures")
        if experiment.sweep is not None:
            raise UserError(f"{file}: load: a sweep finds rates of its own; expected no --against")
        return _run_both(experiment, against, out, only, fresh=fresh, dry_run=dry_run)
    return run_parsed(
        experiment,
        out=out,
        only=only,
        fresh=fresh,
        dry_run=dry_run,
        shapes=bool(shapes),
        again_share=again_share,
        cluster=cluster,
        retry_failures=retry_failures,
    )


def run_parsed(
    experiment: Experiment,
    *,
    out: Path | None,
    only: str | None = None,
    fresh: bool = False,
    dry_run: bool = False,
    shapes: bool = False,
    again_share: float = again.SHARE,
    cluster: Cluster | None = None,
    retry_failures: bool = False,
) -> SweepResult | None:
    """`run_experiment` of an experiment that was read already, on `shapes` of the caller's or on
    models of its own."""
    watch = OthersWatch()
    wanted = named_by(only, experiment)
    directory = out if out is not None else RUNS / experiment.name
    check_folder(directory)
    if cluster is not None and experiment.sweep is not None:
        raise UserError("load: a sweep finds its rates on one machine; expected --executor local")
    asked = experiment
    with elsewhere(cluster is not None):
        experiment, trials = _resolved(experiment, wanted)
    _warn(uncompared(one_load(experiment, wanted), experiment))
    more = quality_trials(experiment, wanted)
    everything = [*trials, *more]
    _warn(too_long(more))
    store = Store(directory, retry_failures)
    if not fresh and (others := of_other_settings(store, everything)):
        _warn([others])
    if dry_run:
        notes = _notes(store, everything) if not fresh else lambda trial: ""
        tell_plan(experiment, asked.sweep, store, trials, more, notes)
        return None
    models = experiment.models if shapes else ()
    with only_writer(directory), forgetting(store, fresh, wanted if only else None, models):
        write = partial(write_inputs, store, experiment, shapes, more)
        if cluster is None:
            write()
            warn_of_others(watch.share())
            stay: Stay | None = "last" if only is None and again_share else None
            with Fleet(open_session, directory / "logs", wiring.weight_bytes, stay=stay) as fleet:
                result = _sweep(store, everything, experiment.time_limit_s, fleet)
                if stay:
                    measure_again(store, trials, experiment, again_share, _sweep, fleet)
        else:
            limit, is_auto = experiment.time_limit_s, asked.models[0].dtype == "auto"
            at = cluster.address
            result = sweep_cluster(store, everything, limit, at, write, is_auto=is_auto)
        if asked.sweep is not None:
            _sweep_rates(store, asked, only, result)
    raise_refusal(result)
    _print_outcome(result, directory, with_failures(store, everything))
    tell_results(directory)
    return result


def _run_both(
    experiment: Experiment,
    against: str,
    out: Path | None,
    only: str | None,
    *,
    fresh: bool,
    dry_run: bool,
) -> SweepResult | None:
    from harness.cli.against.checkout import find_checkout
    from harness.cli.against.paired_run import next_command, run_against, tell

    wanted = named_by(only, experiment)
    other = find_checkout(against)
    directory = out if out is not None else RUNS / f"{experiment.name}-against"
    experiment, trials = _resolved(experiment, wanted)
    result = run_against(experiment, other, trials, directory, fresh=fresh, dry_run=dry_run)
    if result is not None:
        tell(result, directory, sys.stdout)
        print(next_command(directory))
    return result


def _resolved(experiment: Experiment, wanted: Wanted) -> tuple[Experiment, list[Trial]]:
    """The experiment with its content pinned, and its trials; says what is odd about them."""
    every = one_load(experiment, wanted)
    refuse_unscorable(every)
    refuse_other_chats(every)
    experiment = wiring.resolve(experiment, every)
    trials = [trial for trial in experiment.trials() if wanted(trial)]
    asked = trials or one_load(experiment, wanted)
    _warn(wiring.warnings(asked))
    _warn(too_long(asked))
    _warn(replayed(asked))
    return experiment, trials


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"warning: {line}", file=sys.stderr)


def _sweep(
    store: Store,
    trials: Sequence[Trial],
    time_limit_s: float,
    fleet: Fleet,
    budget_s: float | None = None,
) -> SweepResult:
    machine = environment()
    large = [trial for trial in trials if wiring.weight_bytes(trial) > OF_SIZE_BYTES]
    shaped = any(trial.model.shape for trial in large)
    # times at a size mean little without the machine's floor, whose best time counts; what is
    # measured again has this run's
    if large and budget_s is None and (shaped or machine["ceilings"] is None):
        print("measuring how fast this machine reads (20 s)", file=sys.stderr)
        doctor.measure_apart()
        machine = environment()
    pins = Pins()
    older = OlderTrials(store, machine, {trial.backend for trial in trials}, pins)
    older.drop_replaced()
    if others := older.of_others():
        print(f"warning: {others}", file=sys.stderr)
    write_code(store, pins.all_of(trials))
    with SweepDisplay() as progress:

        def told(event: SweepEvent) -> None:
            progress.show(event)
            if event.record is not None and event.record.status == "ok":
                older.drop(event.record.trial)

        return run_sweep(
            trials,
            store,
            fleet,
            environment=machine,
            fingerprint=fingerprint(machine),
            code=pins.of,
            edited=pins.edited,
            time_limit_s=time_limit_s,
            events=told,
            budget_s=budget_s,
        )


def _sweep_rates(
    store: Store, experiment: Experiment, only: str | None, result: SweepResult
) -> None:
    """Each system from idle to saturation, told as it is done; failures are counted in `result`."""
    from harness.cli.goodput.sweeping import sweep_rates

    lines = []
    with SweepDisplay() as progress:
        for done in sweep_rates(store, experiment, only, progress.show):
            lines.append(done.line())
            result.statuses.update({"ok": done.measured, "failed": int(done.failed)})
            result.stored += done.stored
            if done.refusal:
                result.refusals[done.refusal] += 1
    print("\n".join(lines), flush=True)


def _notes(store: Store, trials: Sequence[Trial]) -> Callable[[Trial], str]:
    """What a plan says of a trial: that it is stored, or why it runs again."""
    if not store.trials_folder.exists():
        return lambda trial: ""
    return OlderTrials(store, environment(), {trial.backend for trial in trials}, Pins()).note


def _with_shapes(experiment: Experiment, shapes: Sequence[str]) -> Experiment:
    """The experiment on these shapes, in place of its own models; as it is without any."""
    if not shapes:
        return experiment
    dtype = experiment.models[0].dtype
    models = tuple(Model(name, dtype=dtype, shape=True) for name in dict.fromkeys(shapes))
    return dataclasses.replace(experiment, models=models)


def _print_outcome(result: SweepResult, directory: Path, with_failures: int) -> None:
    told = trials_by_status(result)
    if with_failures:
        told += f"; requests failed in {with_failures} of them (--retry-failures runs these again)"
    print(f"{told}; results in {directory}")
