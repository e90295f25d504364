"""The command ``compare``: is a new run worse than a stored one?"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.core.errors import UserError
from harness.core.names import UNSOUND

if TYPE_CHECKING:
    from results.compare.gate.decision import Decision
    from results.compare.gate.reduced import CellName, ReducedRun, ReducedTrial

GIT = "git:"
"""Begins the name of a store, or of a file of record, that is on a branch."""
EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 3}


def compare(
    first: Annotated[
        Path,
        typer.Argument(
            metavar="BASE", help="A run, a file of record, or one on a branch: git:REF:PATH."
        ),
    ],
    second: Annotated[
        Path | None, typer.Argument(metavar="NEW", help="Alone with --baseline-store.")
    ] = None,
    gate: Annotated[Path | None, typer.Option(help="Margins (YAML); else the defaults.")] = None,
    allow: Annotated[
        list[str] | None, typer.Option(help="A field that may differ; may stand several times.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="Only write the one run as this file of record.")
    ] = None,
    baseline_store: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|git:BRANCH", help="Where a file of record for each machine is kept."
        ),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Only store the run in --baseline-store.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    markdown: Annotated[Path | None, typer.Option(help="Write the answer for a CI page.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the answer as JUnit XML.")] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Run what does not pass once more, in turns.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(metavar="GITREF|DIR", help="BASE's code, for --confirm; else its commit."),
    ] = None,
) -> None:
    """Compare two runs: exit 0 when NEW is not worse than BASE by more than its margins, 1 when it
    is, 3 when neither is shown."""
    _check_together(against is not None and not confirm, update and baseline_store is None)
    if record is not None or update:
        beside = {
            "--gate": gate, "--json": as_json, "--markdown": markdown, "--junit": junit,
            "--confirm": confirm, "--allow": [name for name in allow or () if name != UNSOUND],
            "--baseline-store": baseline_store if not update else None,
        }  # fmt: skip
        _check_alone("--update" if update else "--record", beside)
        _store(first, second, record, baseline_store if update else None, bool(allow))
        return
    _check_writable({"--markdown": markdown, "--junit": junit})
    try:
        decision = _decided(first, second, baseline_store, gate, allow or (), confirm, against)
    except UserError as error:
        _tell_refusal(str(error), markdown, junit)
        raise
    _tell(decision, as_json, markdown, junit)
    if code := EXIT_CODES[decision.verdict]:
        raise typer.Exit(code)


def _check_together(lacks_confirm: bool, lacks_store: bool) -> None:
    if lacks_confirm:
        raise UserError("--against: expected --confirm beside it")
    if lacks_store:
        raise UserError("--update: expected --baseline-store DIR beside it")


def _check_alone(only: str, beside: Mapping[str, object]) -> None:
    for name in (name for name, value in beside.items() if value):
        raise UserError(f"{name}: means nothing beside {only}, which compares nothing")


def _check_writable(outputs: Mapping[str, Path | None]) -> None:
    """A verdict that took a run again would be lost."""
    from harness.core.files import check_writable

    for option, path in outputs.items():
        if path is not None:
            check_writable(path, option)


def _decided(
    first: Path,
    second: Path | None,
    store: str | None,
    gate: Path | None,
    allow: Sequence[str],
    confirm: bool,
    against: str | None,
) -> Decision:
    """The verdict; where asked to, what does not pass is run once more before it."""
    from harness.cli.gate.gate_file import read_rules
    from results.compare.gate.comparison import compare_runs
    from results.compare.gate.identity import MEASURED, check_allowed, check_two_runs
    from results.compare.gate.margins import DEFAULTS
    from results.compare.gate.reduced import named_as

    allowed = check_allowed(allow)
    rules = read_rules(gate) if gate is not None else DEFAULTS
    base, new = _both(first, second, store, {*rules.names, MEASURED})
    base = named_as(base, new)  # what --confirm runs again are cells of NEW's experiment
    check_two_runs(base, new)
    decision = compare_runs(base, new, rules, allowed)
    if not confirm or decision.verdict == "pass":
        return decision
    from harness.cli.gate import confirm as again

    sides = base, new
    base, new, cells = again.confirm(decision, sides, Path(new.where), against, rules.names)
    if not cells:
        return decision
    return again.confirmed(compare_runs(base, new, rules, allowed), decision, cells)


def read_side(path: Path, names: Iterable[str]) -> ReducedRun:
    """A run folder or a file of record. Raises `UserError`."""
    if str(path).startswith(GIT):
        from harness.cli.gate.baselines import read_from_git

        return read_from_git(str(path))
    if not path.is_dir():
        from results.compare.gate.record_file import read_record

        return read_record(path)
    import results
    from results.compare.gate.extraction import reduce_run

    return reduce_run(results.load(path), names)


def _both(
    first: Path, second: Path | None, store: str | None, names: Collection[str]
) -> tuple[ReducedRun, ReducedRun]:
    if store is None:
        if second is None:
            raise UserError("compare: expected BASE and NEW, or --baseline-store DIR and NEW")
        if first.exists() and second.exists() and first.samefile(second):
            raise UserError(f"compare: {first} and {second} are the same: expected two runs")
        return read_side(first, names), read_side(second, names)
    if second is not None:
        raise UserError("--baseline-store: expected NEW alone beside it, found two runs")
    from harness.cli.gate.baselines import open_store

    new = read_side(first, names)
    machine, kept = _machine(new), open_store(store)
    known = kept.machines()
    if machine not in known:
        raise UserError(
            f"{store}: no baseline of this machine ({machine}), only of: "
            f"{', '.join(known) or 'none'}; {kept.how_to_get_one()}"
        )
    return kept.read(machine), new


def _store(
    first: Path, second: Path | None, record: Path | None, store: str | None, unsound: bool
) -> None:
    """Write one run as a file of record. Raises `UserError` for a baseline that every comparison
    would call inconclusive, in whose place the former one is kept."""
    from harness.cli.gate.baselines import open_store
    from results.compare.gate.identity import check_one_version
    from results.compare.gate.quantities import quantities
    from results.compare.gate.record_file import write_record

    if second is not None:
        raise UserError("compare: expected one run where it is to be stored, found two")
    run = read_side(first, quantities())
    check_one_version(run)
    gaps = [*_gaps(first, run)]
    if store is not None and not unsound and (told := [*gaps, *_unsound(run)]):
        raise UserError(
            f"{first}: {told[0]}; not stored, since nothing could be shown of them beside it: run "
            f"it again, or take out of the experiment what never runs here ('--allow {UNSOUND}' "
            "stores it)"
        )
    for sentence in gaps:
        typer.echo(f"warning: {sentence}", err=True)
    if record is not None:
        write_record(record, run)
        print(f"record: {record}: {len(run.trials)} trials")
    if store is not None:
        place = open_store(store).write(_machine(run), run)
        print(f"record: {place}: {len(run.trials)} trials")


def _gaps(path: Path, run: ReducedRun) -> Iterator[str]:
    """Of what a baseline of this run would say nothing, a sentence each."""
    found = run.cells()
    asked = _cells_asked(path) if path.is_dir() else 0
    if asked > len(found):
        told = f"{asked - len(found)} of {asked} cells of the experiment have no trial"
        yield f"{told}, and will not be gated"
    tried = _tried(run).items()
    lacking = [cell for cell, trials in tried if not any(t.ended_well for t in trials)]
    if lacking:
        told = f"{len(lacking)} of {len(found)} cells have no trial that ended well"
        yield f"{told}, and nothing will be shown of them: {lacking[0].label()}"


def _unsound(run: ReducedRun) -> Iterator[str]:
    """Which cells have too few repeats whose times are believed."""
    from results.compare.gate.comparison import SOUND_REPEATS

    tried = _tried(run)
    few = {
        cell: trials
        for cell, trials in tried.items()
        if sum(t.ended_well and t.is_usable for t in trials) < SOUND_REPEATS
    }
    if few:
        cell, trials = next(iter(few.items()))
        doubts = [t.doubt if t.ended_well else t.status for t in trials]
        told = ", ".join(dict.fromkeys(filter(None, doubts))) or "one repeat"
        yield (
            f"{len(few)} of {len(tried)} cells have fewer than {SOUND_REPEATS} sound repeats "
            f"({cell.label()}: {told}), which a quieter machine or more repeats would give"
        )


def _tried(run: ReducedRun) -> dict[CellName, list[ReducedTrial]]:
    """The cells without what was skipped, of which there is nothing to be shown."""
    tried = (trial for trial in run.trials if trial.status != "skipped")
    return replace(run, trials=[*tried]).cells()


def _cells_asked(folder: Path) -> int:
    """How many cells the experiment of a run has."""
    import results

    asked = results.load(folder).experiment
    models = asked["model"] if isinstance(asked["model"], list) else [asked["model"]]
    return len(models) * math.prod(len(asked[k]) for k in ("backends", "workloads", "loads"))


def _machine(run: ReducedRun) -> str:
    if run.fingerprint is None:
        raise UserError(f"{run.where}: its machine is not known; expected a fingerprint")
    return run.fingerprint


def _tell_refusal(why: str, markdown: Path | None, junit: Path | None) -> None:
    """A CI shows its files, not what the command said."""
    from harness.cli.gate.written import refusal_as_junit, refusal_as_markdown
    from harness.core.files import write_atomic

    if markdown is not None:
        write_atomic(markdown, refusal_as_markdown(why).encode())
    if junit is not None:
        write_atomic(junit, refusal_as_junit(why))


def _tell(decision: Decision, as_json: bool, markdown: Path | None, junit: Path | None) -> None:
    from harness.core.files import write_atomic

    if markdown is not None:
        from harness.cli.gate.written import as_markdown

        write_atomic(markdown, as_markdown(decision).encode())
    if junit is not None:
        from harness.cli.gate.written import as_junit

        write_atomic(junit, as_junit(decision))
    if as_json:
        print(json.dumps(decision.to_json(), allow_nan=False))
    else:
        from harness.cli.gate.shown import print_decision

        print_decision(decision)
