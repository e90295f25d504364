"""The command ``import``: what another tool measured becomes a run folder."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from harness.core.errors import UserError
from harness.core.files import only_writer, user_path


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
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        raise UserError(f"--out {out}: is there already; expected the name of a new folder")
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
    store = Store(out)
    with only_writer(out):
        try:
            made_of = experiment_of(out.resolve().name, records, names[0])
            store.write_experiment(yaml.safe_dump(made_of, sort_keys=False))
            for record, (_, load) in zip(records, loads, strict=True):
                store.write_prompts(str(record.trial.workload.checksum), prompt_rows(load))
                store.write(record)
        except OSError as error:
            raise UserError(f"{out}: cannot be written: {error.strerror or error}") from None
    print(f"imported: {len(records)} loads of {', '.join(dict.fromkeys(names))} into {out}")
    tell_results(out)


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
