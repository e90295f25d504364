"""The command ``import``: what another tool measured becomes a run folder."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from harness.core.errors import UserError
from harness.core.files import LOCK, move, only_writer, user_path

UNFINISHED = ".unfinished"
"""In the run folder, which what is in there is not yet part of."""
PARTS = ("experiment.yaml", "prompts", "trials")
"""Of a run folder, which is no such folder before the last of them is in place."""


def import_results(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Of 'vllm bench serve --save-detailed', GuideLLM (JSON) or AIPerf (its folder).",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The run folder to be made.")],
    label: Annotated[
        list[str] | None,
        typer.Option(help="What a file is called, in their order; files called alike are repeats."),
    ] = None,
    workload: Annotated[str, typer.Option(help="What was asked.")] = "imported prompts",
    ttft_ms: Annotated[float | None, typer.Option(min=0, help="Of the slo.")] = None,
    tpot_ms: Annotated[float | None, typer.Option(min=0, help="Of the slo.")] = None,
    e2e_ms: Annotated[float | None, typer.Option(min=0, help="Of the slo.")] = None,
    cold: Annotated[
        bool, typer.Option("--cold", help="No prompt's beginning came from the server's cache.")
    ] = False,
) -> None:
    """Make a run folder of what another tool measured, for the same page and the same tables. The
    first file is what the others are compared with."""
    import yaml

    from harness.cli.cells.outcome import tell_results
    from harness.core.nouns import Slo
    from results.imports.files import read_foreign
    from results.imports.foreign import experiment_of, imported_cell, make_record, prompt_rows
    from results.store.folder import Store

    names = _names(files, label or ())
    objective = Slo(ttft_ms, tpot_ms, e2e_ms)
    _check_new(out)
    loads = [
        (name, load)
        for name, file in zip(names, files, strict=True)
        for load in read_foreign(user_path(str(file), "FILE"))
    ]
    seen: Counter[str] = Counter()
    records = []
    for name, load in loads:
        cell = imported_cell(load, name, workload, objective).key(load.tool)
        records.append(make_record(load, name, workload, seen[cell], objective, cold=cold))
        seen[cell] += 1
    made_of = experiment_of(out.resolve().name, records, names[0])
    try:
        with _whole(out) as unfinished:
            store = Store(unfinished)
            store.write_experiment(yaml.safe_dump(made_of, sort_keys=False))
            for record, (_, load) in zip(records, loads, strict=True):
                store.write_prompts(str(record.trial.workload.checksum), prompt_rows(load))
                store.write(record)
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror or error}") from None
    print(f"imported: {len(records)} loads of {', '.join(dict.fromkeys(names))} into {out}")
    tell_results(out)


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """A place whose parts become those of the run folder `out` on leaving, none where anything is
    raised. It is in the folder and not beside it, which may be a mount or where the user is."""
    made = not out.exists()
    unfinished = out / UNFINISHED
    with only_writer(out):
        _check_new(out)  # another import may have been faster
        _clear(out)
        try:
            unfinished.mkdir()
            yield unfinished
            for name in PARTS:
                move(unfinished / name, out / name)
        except BaseException:
            if not (out / PARTS[-1]).exists():
                with suppress(OSError):  # a read-only disk refuses that too
                    _clear(out)
                    if made:
                        out.rmdir()
            raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _check_new(out: Path) -> None:
    """Raise `UserError` for what is there, except for what a killed import left behind."""
    if not out.exists():
        return
    there = {path.name for path in out.iterdir()} - {LOCK} if out.is_dir() else {PARTS[-1]}
    if there and (UNFINISHED not in there or PARTS[-1] in there):
        raise UserError(f"--out {out}: is there already; expected the name of a new folder")


def _clear(out: Path) -> None:
    """Remove what an import that did not end left in a folder. Raises `OSError`."""
    if not (out / UNFINISHED).exists():
        return
    (out / PARTS[0]).unlink(missing_ok=True)
    for name in (*PARTS[1:-1], UNFINISHED):
        if (out / name).exists():
            shutil.rmtree(out / name)


def _names(files: list[Path], labels: list[str] | tuple[str, ...]) -> list[str]:
    """What each file is called: as told, or by its own name."""
    from harness.experiment.choices import LABEL, is_label

    if not labels:
        names = [file.resolve().name if file.is_dir() else file.stem for file in files]
        if len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise UserError(f"FILE: two are named '{twice}'; expected a --label for each file")
        return names
    if len(labels) != len(files):
        raise UserError(
            f"--label: {len(labels)} for {len(files)} files; expected one for each, in their order"
        )
    if "" in labels:
        raise UserError("--label: is empty; expected a name")
    for label in labels:
        if not is_label(label):
            raise UserError(f"--label: is '{label}'; expected {LABEL}")
    return list(labels)
