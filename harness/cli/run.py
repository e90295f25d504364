"""The command ``run``: an experiment file to stored trials."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.cli import display, doctor, wiring
from harness.cli.cells.outcome import tell_results
from harness.cli.cluster.place import Cluster
from harness.cli.cluster.sweep import sweep_cluster
from harness.cli.pins import OlderTrials, Pins, whole_records
from harness.cli.progress import SweepDisplay, warn_of_others
from harness.cli.repeats.measured_again import measure_again
from harness.cli.session import open_session
from harness.core.errors import UserError, nearest
from harness.core.nouns import Model, Trial
from harness.experiment.config import Experiment, load_experiment
from harness.measure import again
from harness.measure.machine.environment import environment, fingerprint
from harness.measure.machine.others import OthersWatch
from harness.measure.sweep import SweepEvent, SweepResult, run_sweep
from results.store.folder import Store

RUNS = Path("runs")
EXPERIMENT = "experiment.yaml"
DRAFT = f".{EXPERIMENT}."


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
) -> SweepResult | None:
    """Run what is missing of the experiment in `file`; returns None for a dry run, which makes
    every check that comes before an engine is loaded. `shapes` stand in for the file's models.

    Of the time that all this takes, at most `again_share` more goes into measuring disturbed trials
    once more, which `only` never does: it measures one side of each pair. `cluster`: where trials
    run; None: here.

    Nothing is written before everything the experiment names has been found and checked.
    Raises `UserError` for bad input and for a disk that does not take the results.
    """
    experiment = _with_shapes(load_experiment(file, wiring.known()), shapes)
    return run_parsed(
        experiment,
        out=out,
        only=only,
        fresh=fresh,
        dry_run=dry_run,
        shapes=bool(shapes),
        again_share=again_share,
        cluster=cluster,
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
) -> SweepResult | None:
    """`run_experiment` of an experiment that was read already, on `shapes` of the caller's or on
    models of its own."""
    watch = OthersWatch()
    _check_only(only, experiment)
    directory = out if out is not None else RUNS / experiment.name
    check_folder(directory)
    experiment = wiring.resolve(experiment)
    trials = [trial for trial in experiment.trials() if only in (None, trial.backend)]
    for warning in wiring.warnings(trials):
        print(f"warning: {warning}", file=sys.stderr)
    store = Store(directory)
    if dry_run:
        for model in experiment.models:
            wiring.check_tokenizer(model)
        _check_writing(store)
        display.print_plan(trials, _notes(store, trials) if not fresh else lambda trial: "")
        return None
    with only_writer(directory):
        # foreign records and other schema versions are refused before anything is written
        deque(whole_records(store), maxlen=0)
        if fresh:
            _forget(store, only, experiment.models if shapes else ())
        _write_inputs(store, experiment, shapes)
        if cluster is None:
            warn_of_others(watch.share())
            result = _sweep(store, trials, experiment.time_limit_s)
        else:
            result = sweep_cluster(store, trials, experiment.time_limit_s, cluster.address)
        if only is None and again_share and cluster is None:
            measure_again(store, trials, experiment, again_share, _sweep)
    _raise_refusal(result)
    _print_outcome(result, directory)
    tell_results(directory)
    return result


def _sweep(
    store: Store, trials: Sequence[Trial], time_limit_s: float, budget_s: float | None = None
) -> SweepResult:
    machine = environment()
    if machine["ceilings"] is None and any(trial.model.shape for trial in trials):
        # times at a size mean little without the floor that the machine sets
        print("measuring this machine's bandwidth, once", file=sys.stderr)
        doctor.measure_ceilings()
        machine = environment()
    pins = Pins()
    older = OlderTrials(store, machine, {trial.backend for trial in trials}, pins)
    older.drop_replaced()
    write_code(store, pins.all_of(trials))
    with SweepDisplay() as progress:

        def told(event: SweepEvent) -> None:
            progress.show(event)
            if event.record is not None and event.record.status == "ok":
                older.drop(event.record.trial)

        return run_sweep(
            trials,
            store,
            open_session,
            environment=machine,
            fingerprint=fingerprint(machine),
            code=pins.of,
            time_limit_s=time_limit_s,
            events=told,
            log_dir=store.path / "logs",
            weight_bytes=wiring.weight_bytes,
            budget_s=budget_s,
        )


def _notes(store: Store, trials: Sequence[Trial]) -> Callable[[Trial], str]:
    """What a plan says of a trial: that it is stored, or why it runs again."""
    if not store.trials_folder.exists():
        return lambda trial: ""
    return OlderTrials(store, environment(), {trial.backend for trial in trials}, Pins()).note


def _raise_refusal(result: SweepResult) -> None:
    """An experiment of which nothing could run for its input is bad input, in one line. Where other
    trials ran, each refusal is told once."""
    if result.refusals and result.refusals.total() == result.statuses.total() and not result.stored:
        raise UserError("; ".join(result.refusals))
    for refusal, count in result.refusals.items():
        trials = "trial" if count == 1 else "trials"
        print(f"{refusal} ({count} {trials} failed)", file=sys.stderr)


def _check_only(only: str | None, experiment: Experiment) -> None:
    names = {choice.name for choice in experiment.backends}
    if only is not None and only not in names:
        raise UserError(f"--only: no backend '{only}'; {nearest(only, names)}")


def check_folder(directory: Path) -> None:
    """Refuse to write into a folder, or over a file, that something else made."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise UserError(f"{directory}: expected a folder for the run, found a file")
    # a run that was killed at its very beginning leaves a temporary file and nothing else
    found = [path for path in directory.iterdir() if not path.name.startswith(DRAFT)]
    if found and not (directory / EXPERIMENT).is_file():
        raise UserError(f"{directory}: not a run folder (no {EXPERIMENT}); name another --out")


def _check_writing(store: Store) -> None:
    """What a run finds out by writing, found without: nothing is made or changed."""
    there = next(path for path in (store.path, *store.path.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        reason = "Permission denied" if there.is_dir() else "Not a directory"
        raise UserError(f"{store.path}: {reason}; name another --out")
    if there == store.path:
        with only_writer(store.path):
            deque(whole_records(store), maxlen=0)


@contextlib.contextmanager
def only_writer(directory: Path) -> Iterator[None]:
    """Hold the run folder: two runs would measure each other and store each trial twice. The lock
    is the kernel's, so that it ends with the process, however that ends."""
    descriptor = None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"{directory}: another run is writing into it; let it end, or name another --out"
        ) from None
    except OSError as error:
        if descriptor is None:  # else a file system without locks
            raise UserError(f"{directory}: {error.strerror}; name another --out") from None
    try:
        yield
    finally:
        os.close(descriptor)


def _forget(store: Store, only: str | None, models: Sequence[Model] = ()) -> None:
    """Delete what a run has stored; with `only` that backend's trials, with `models` theirs."""
    labels = {model.label() for model in models}
    try:
        if only is not None or labels:
            for key, stored in whole_records(store):
                trial = stored.record.trial
                if only in (None, trial.backend) and (not labels or trial.model.label() in labels):
                    store.remove(key)
            return
        for name in ("trials", "prompts", "code", "cache", "logs"):
            if (store.path / name).exists():
                shutil.rmtree(store.path / name)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"--fresh: {error.filename or store.path}: {reason}") from None


def _with_shapes(experiment: Experiment, shapes: Sequence[str]) -> Experiment:
    """The experiment on these shapes, in place of its own models; as it is without any."""
    if not shapes:
        return experiment
    dtype = experiment.models[0].dtype
    models = tuple(Model(name, dtype=dtype, shape=True) for name in dict.fromkeys(shapes))
    return dataclasses.replace(experiment, models=models)


def _all_models(store: Store, experiment: Experiment, all_kinds: bool) -> tuple[Model, ...]:
    """The experiment's models and those that earlier calls with other shapes have left trials of in
    the folder, so that the stored experiment lists every model that the report shows. Models that
    are no shapes stay only with `all_kinds`: without it, another one took their place in the file.
    """
    own = experiment.models
    before = sorted((s.record for _, s in whole_records(store)), key=lambda r: r.started_at)
    found = {r.trial.model.label(): r.trial.model for r in before}
    labels, dtype = {model.label() for model in own}, own[0].dtype
    kept = tuple(
        model
        for label, model in found.items()
        if label not in labels and model.dtype == dtype and (model.shape or all_kinds)
    )
    return kept + own if all_kinds else own + kept


def _write_inputs(store: Store, experiment: Experiment, on_shapes: bool) -> None:
    """Keep the resolved experiment and every prompt beside the trials."""
    directory = wiring.model_folder(experiment.models[0])
    try:
        whole = dataclasses.replace(experiment, models=_all_models(store, experiment, on_shapes))
        store.write_experiment(whole.to_yaml())
        write_prompts(store, experiment.trials(), directory)
    except OSError as error:
        raise UserError(f"{store.path}: cannot be written: {error.strerror or error}") from None


def write_prompts(store: Store, trials: Sequence[Trial], directory: Path) -> None:
    """Keep the prompts of trials on the model in `directory`. Raises `OSError`."""
    missing = [trial for trial in trials if not store.has_prompts(str(trial.workload.checksum))]
    for rows, checksum in wiring.prompt_rows(missing, directory) if missing else ():
        store.write_prompts(checksum, rows)


def write_code(store: Store, code: Mapping[str, Mapping[str, str]]) -> None:
    """Keep what the trials' keys pin, so that a later run can say what changed."""
    try:
        for digest, parts in code.items():
            store.write_code(digest, parts)
        named = {str(stored.record.environment.get("code")) for _, stored in whole_records(store)}
        store.keep_code(named | code.keys())
    except OSError as error:
        raise UserError(f"{store.path}: cannot be written: {error.strerror or error}") from None


def _print_outcome(result: SweepResult, directory: Path) -> None:
    counts = Counter({"stored": result.stored})
    counts.update({str(status): count for status, count in result.statuses.items()})
    parts = [f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count]
    print(f"trials: {', '.join(parts) or 'none'}; results in {directory}")
