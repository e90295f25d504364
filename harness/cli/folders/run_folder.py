"""A run's folder: whose it is, who writes into it, and what stands there beside the trials."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import sys
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from harness.cli import wiring
from harness.cli.pins import whole_records
from harness.cli.repeats.only import Wanted
from harness.core.errors import UserError
from harness.core.files import LOCK, move, only_writer, rename_folder, write_atomic
from harness.core.nouns import Model, Trial
from harness.experiment.config import Experiment
from results.goodput.stored import ANSWER, CURVES
from results.store.folder import Store

EXPERIMENT = "experiment.yaml"
DRAFT = f".{EXPERIMENT}."
ASIDE = ".forgotten"
DONE = ".forgotten.done"
"""What is only to be deleted: a deletion that is cut short is never taken back."""
BEFORE = "before.json"
"""Beside what was set aside: the digests of all records that there were then."""


def check_folder(directory: Path) -> None:
    """Refuse to write into a folder, or over a file, that something else made."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise UserError(f"{directory}: expected a folder for the run, found a file")
    # a run that was killed at its very beginning leaves a temporary file and nothing else
    found = [p for p in directory.iterdir() if not p.name.startswith(DRAFT) and p.name != LOCK]
    if found and not (directory / EXPERIMENT).is_file():
        raise UserError(f"{directory}: not a run folder (no {EXPERIMENT}); name another --out")
    if found:
        Store(directory).read_experiment()


def check_writing(store: Store) -> None:
    """What a run finds out by writing, found without: nothing is made or changed."""
    there = next(path for path in (store.path, *store.path.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        reason = "Permission denied" if there.is_dir() else "Not a directory"
        raise UserError(f"{store.path}: {reason}; name another --out")
    if there == store.path:
        with only_writer(store.path, writes=False):
            deque(whole_records(store), maxlen=0)


@contextlib.contextmanager
def forgetting(
    store: Store,
    fresh: bool,
    only: Wanted | None = None,
    models: Sequence[Model] = (),
) -> Iterator[None]:
    """Around a run that is `fresh`: set aside what was stored, with `only` the trials of which it
    is true, with `models` theirs. It is deleted once the run has stored a trial that ended well,
    and put back where it has stored none; also by the next run, where this one is killed.

    Raises `UserError` for foreign records and other schema versions, before anything is moved.
    """
    aside = store.path / ASIDE
    with _told_of_files(store):
        _settle(store, aside)
        deque(whole_records(store), maxlen=0)
        if fresh:
            _set_aside(store, aside, only, {model.label() for model in models})
    try:
        yield
    finally:
        with _told_of_files(store):
            if fresh and not _settle(store, aside):
                told = f"{store.path}: no trial ended well: what was stored is kept"
                print(f"--fresh: {told}", file=sys.stderr)


@contextlib.contextmanager
def _told_of_files(store: Store) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"--fresh: {error.filename or store.path}: {reason}") from None


def _set_aside(store: Store, aside: Path, only: Wanted | None, labels: Collection[str]) -> None:
    found: list[Path] = []
    if only is None and not labels:
        names = ("trials", "prompts", "code", "cache", "logs", ANSWER, CURVES)
        found = [store.path / name for name in names]
        if link := next((path for path in found if path.is_symlink()), None):
            raise UserError(
                f"--fresh: {link}: is a link, so what it leads to would stay and what is new would "
                "lie elsewhere; make it a folder of its own, or name another --out"
            )
    for key, stored in whole_records(store) if only is not None or labels else ():
        trial = stored.record.trial
        if (only is None or only(trial)) and (not labels or trial.model.label() in labels):
            found += [store.trials_folder / f"{key}.{end}" for end in ("json", "parquet")]
    if found := list(filter(Path.exists, found)):
        digests = [stored.digest for _, stored in whole_records(store)]
        aside.mkdir()
        write_atomic(aside / BEFORE, json.dumps(digests).encode())
    for path in found:
        move(path, aside / path.relative_to(store.path))


def _settle(store: Store, aside: Path) -> bool:
    """Delete what was set aside where something good was stored since, else put it back. Whether
    it is no longer needed."""
    done = store.path / DONE
    if done.exists():
        shutil.rmtree(done)
    if not aside.exists():
        return True
    before = _before(aside)
    # clocks are set, and records that lie here again since a settling was cut short are no new ones
    replaced = before is not None and any(
        s.record.status == "ok"
        and s.digest not in before
        and store.payload_state(key)[0] == s.payload.bytes
        for key, s in whole_records(store)
    )
    # a record's JSON, which makes it count, comes behind its generations
    for path in sorted(aside.rglob("*"), reverse=True) if not replaced else ():
        if path != aside / BEFORE and (path.is_symlink() or not path.is_dir()):
            move(path, store.path / path.relative_to(aside))
    rename_folder(aside, done)
    shutil.rmtree(done)
    return replaced


def _before(aside: Path) -> list[str] | None:
    """None where nothing tells, as a kill before it was written leaves it: all is put back."""
    try:
        found: list[str] = json.loads((aside / BEFORE).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return found


def _all_models(store: Store, experiment: Experiment, all_kinds: bool) -> tuple[Model, ...]:
    """The experiment's models and those that earlier calls with other shapes have left trials of in
    the folder, so that the stored experiment lists every model that the report shows. Models that
    are no shapes stay only with `all_kinds`: without it, another one took their place in the file.
    They stay in the order of the stored experiment; trials are not run in that of their models.
    """
    own, listed = experiment.models, _listed(store)
    before = sorted((s.record for _, s in whole_records(store)), key=lambda r: r.started_at)
    found = {r.trial.model.label(): r.trial.model for r in before}
    in_order = sorted(found.items(), key=lambda item: _place(listed, item[1]))
    labels, dtype = {model.label() for model in own}, own[0].dtype
    kept = tuple(
        model
        for label, model in in_order
        if label not in labels and model.dtype == dtype and (model.shape or all_kinds)
    )
    return kept + own if all_kinds else own + kept


def _listed(store: Store) -> list[tuple[object, object]]:
    """Names and layers of the stored experiment's models, as far as its file can be read."""
    with contextlib.suppress(UserError):
        models = store.read_experiment().get("model")
        every = models if isinstance(models, list) else [models]
        return [(m.get("name"), m.get("layers")) for m in every if isinstance(m, Mapping)]
    return []


def _place(listed: Sequence[tuple[object, object]], model: Model) -> int:
    named = model.name, model.layers
    return listed.index(named) if named in listed else len(listed)


def write_inputs(
    store: Store, experiment: Experiment, on_shapes: bool, more: Sequence[Trial] = ()
) -> None:
    """Keep the resolved experiment and every prompt beside the trials; `more`: trials beside the
    experiment's own."""
    directory = wiring.model_folder(experiment.models[0])
    try:
        whole = dataclasses.replace(experiment, models=_all_models(store, experiment, on_shapes))
        store.write_experiment(whole.to_yaml())
        write_prompts(store, [*experiment.trials(), *more], directory)
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
        records = [stored.record for _, stored in whole_records(store)]
        if not (store.path / ASIDE).exists():  # whose records may come back
            store.keep_code({str(r.environment.get("code")) for r in records} | code.keys())
    except OSError as error:
        raise UserError(f"{store.path}: cannot be written: {error.strerror or error}") from None
