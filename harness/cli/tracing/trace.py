"""The command ``trace``: what a stored run decided becomes a file that backends replay."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backends import load_class
from harness.core.errors import UserError, nearest
from harness.core.nouns import REPLAYED, canonical_json, to_json

if TYPE_CHECKING:
    from results.store.records import StoredTrial
    from results.traces.recorded import DecisionTrace

RECORDS = (
    *("adadecode", "own-early-exit", "speculative", "tetris"),
    *("vllm-early-exit", "vllm-speculative"),
)
"""Backends with an option `record`."""
EVERYWHERE = ("model", "sampling", "seed", "ignore_eos", "duration_s")
BY_WORKLOAD = ("workload", "requests", "max_new_tokens")
Key = Callable[["StoredTrial"], str]


def trace(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    out: Annotated[Path, typer.Option(help="The trace's file.")],
    backend: Annotated[str | None, typer.Option(help="Whose decisions.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE of the variant; may be repeated.")
    ] = None,
    load: Annotated[str | None, typer.Option(help="As in tables: 'closed c=8'.")] = None,
    model: Annotated[str | None, typer.Option(help="As in tables.")] = None,
) -> None:
    """Write what a run decided (exits, acceptance, lengths) for replay on other models."""
    import results
    from results.compare.quality import without_quality
    from results.goodput.stored import without_probes
    from results.traces.file import write_trace
    from results.traces.recording import has_recorded, make_trace
    from workloads import LABELLED

    # neither prompts asked for quality alone nor probes are a load of their own
    run = without_quality(results.load(directory))
    run = without_probes(run)
    ended = [s for s in run.stored if s.record.status == "ok" and not _is_replay(s)]
    if not ended:
        raise UserError(f"{directory}: no trial in it that ended well and decided for itself")
    chosen = _one(ended, "backend", lambda s: s.record.trial.backend, backend, directory)
    chosen = _with_options(chosen, option or [], directory)
    chosen = _one(chosen, "load", lambda s: s.record.trial.load.label(), load, directory)
    chosen = _one(chosen, "model", lambda s: s.record.trial.model.name, model, directory)
    if labelled := {s.record.trial.workload.name for s in chosen}.intersection(LABELLED):
        name = min(labelled)
        raise UserError(f"{directory}: answers to {name} are labels; expected a run of text")
    latest = _latest(chosen)
    if len(latest) < len(chosen):
        print(
            f"{len(chosen) - len(latest)} of {len(chosen)} trials left out: asked otherwise than "
            f"the latest ({_differing(chosen)})",
            file=sys.stderr,
        )
    records = [run.store.read(stored.record.key) for stored in _first_repeats(latest)]
    lengths = {
        row["request_id"]: int(row["prompt_tokens"])
        for record in records
        for row in run.store.read_prompts(str(record.trial.workload.checksum))
    }
    made, left_out = make_trace(records, lengths)
    write_trace(out, made)
    if left_out:
        print(f"{left_out} requests that did not end well are left out", file=sys.stderr)
    if not has_recorded(records):
        told = "no decisions were recorded: lengths and passes alone, no confidences"
        print(f"{told}{_why_none(made, records[0].trial.options)}", file=sys.stderr)
    print(f"trace: {out}: {len(made.rows)} requests of {made.method}")


def _why_none(made: DecisionTrace, options: Mapping[str, Any]) -> str:
    """Why nothing was decided in what was to be recorded, else how to record it."""
    if options.get("record"):
        short = all(row.answer_tokens < 2 for row in made.rows)
        return (
            "; no answer has a second token, the first that could leave early or be drafted" * short
        )
    verified = made.method == "tetris" and options.get("verify")
    name = "adadecode" if verified else made.method  # whose decisions it replays
    return f"; run {name} with 'record: true' for them" if name in RECORDS else ""


def _is_replay(stored: StoredTrial) -> bool:
    backend = stored.record.backend
    return backend is None or backend.provenance == REPLAYED


def _one(
    found: Sequence[StoredTrial], name: str, of: Key, wanted: str | None, directory: Path
) -> list[StoredTrial]:
    """The trials with the wanted value, or with the only one there is. Raises `UserError`."""
    values = list(dict.fromkeys(map(of, found)))
    if wanted is None and len(values) > 1:
        raise UserError(f"{directory}: several {name}s; give --{name}: {', '.join(values)}")
    if wanted is not None and wanted not in values:
        raise UserError(f"--{name}: '{wanted}' is not in {directory}; {nearest(wanted, values)}")
    return [stored for stored in found if wanted in (None, of(stored))]


def _with_options(
    found: Sequence[StoredTrial], wanted: Sequence[str], directory: Path
) -> list[StoredTrial]:
    """The trials of the one variant that has these options. Raises `UserError`."""
    for text in wanted:
        name, mark, value = text.partition("=")
        if not mark:
            raise UserError(f"--option: expected NAME=VALUE, got '{text}'")
        _check_option(name, found)
        values = list(dict.fromkeys(_text(s.record.trial.options.get(name)) for s in found))
        if value not in values:
            raise UserError(f"--option: no variant with {text}; {name} is {' or '.join(values)}")
        found = [s for s in found if _text(s.record.trial.options.get(name)) == value]
    variants = {canonical_json(to_json(s.record.trial.options)): s for s in found}
    if len(variants) > 1:
        every = [s.record.trial.options for s in variants.values()]
        any_recorded = any(options.get("record") for options in every)
        told = "; ".join(
            _telling(options, every)
            + (" (not recorded)" if any_recorded and not options.get("record") else "")
            for options in every
        )
        raise UserError(f"{directory}: several variants; give --option NAME=VALUE: {told}")
    return list(found)


def _check_option(name: str, found: Sequence[StoredTrial]) -> None:
    """Raise `UserError` for a name that is no option of the trials' backend."""
    known = {given for stored in found for given in stored.record.trial.options}
    if name not in known:
        with contextlib.suppress(UserError):  # a backend that is no longer there
            known |= set(load_class(found[0].record.trial.backend).OPTIONS)
    if known and name not in known:
        raise UserError(f"--option: no option '{name}'; {nearest(name, known)}")


def _telling(options: Any, others: Sequence[Any]) -> str:
    """The options of a variant in which the variants differ."""
    names = sorted({name for other in others for name in other})
    told = [n for n in names if len({canonical_json(to_json(o.get(n))) for o in others}) > 1]
    return " ".join(f"{name}={_text(options.get(name))}" for name in told)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(to_json(value))


def _latest(found: Sequence[StoredTrial]) -> list[StoredTrial]:
    """Those that were asked as the latest: of one model, and of each workload in one way. A folder
    keeps what ran before its experiment was changed."""
    newest = sorted(found, key=lambda stored: stored.record.started_at, reverse=True)
    same = [one for one in newest if _told(one, EVERYWHERE) == _told(newest[0], EVERYWHERE)]
    first: dict[str, StoredTrial] = {}
    for one in same:
        first.setdefault(one.record.trial.workload.name, one)
    wanted = {name: _told(one, BY_WORKLOAD) for name, one in first.items()}
    alike = (s for s in same if _told(s, BY_WORKLOAD) == wanted[s.record.trial.workload.name])
    kept = {stored.record.key for stored in alike}
    return [stored for stored in found if stored.record.key in kept]


def _told(stored: StoredTrial, names: Sequence[str]) -> list[str]:
    """Fields of a trial, as text."""
    fields = to_json(stored.record.trial)
    return [canonical_json(fields.get(name)) for name in names]


def _differing(found: Sequence[StoredTrial]) -> str:
    """What trials of one workload, or all of them, are asked otherwise."""
    workloads: dict[str, list[StoredTrial]] = {}
    for one in found:
        workloads.setdefault(one.record.trial.workload.name, []).append(one)
    groups = [(EVERYWHERE, list(found)), *((BY_WORKLOAD, some) for some in workloads.values())]
    return ", ".join(
        dict.fromkeys(
            name
            for names, some in groups
            for name in names
            if len({_told(one, [name])[0] for one in some}) > 1
        )
    )


def _first_repeats(found: Sequence[StoredTrial]) -> list[StoredTrial]:
    """Of each workload the first repeat that there is."""
    by_repeat = sorted(found, key=lambda stored: stored.record.trial.repeat)
    first = {s.record.trial.workload.name: s for s in reversed(by_repeat)}
    return [stored for stored in found if stored in first.values()]
