"""The words around the numbers: what was run, on what, and what to be careful about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.core.names import SERVER, counted_by, stands_in_for
from reports.cells import Cell, Overview
from reports.numbers import counted
from reports.text import clipped, visible
from reports.words.doubts.apart import machine_names
from reports.words.doubts.not_run import not_run
from reports.words.ranking.by_size import by_model
from results.compare.machines import differing, machines

if TYPE_CHECKING:
    from harness.core.nouns import Trial, TrialRecord
    from results import Run

RESULTS_NOTE = (
    "A row (cell) per backend, workload and load; medians over the repeats. Speed-up and "
    "throughput carry their 95% interval and the range of the repeats in brackets. Struck-through "
    "numbers are not valid. A dash has no value: point at it to see why. Under an open load stands "
    "the rate that its arrivals came to. Overhead-bound: over half of a step on either side of the "
    "speed-up lies above what reading and multiplying take (see the step times)."
)

_NAMED = 3
"""Values of an environment that are named beside the first trial's."""


def summary(run: Run, seen: Overview) -> str:
    """One paragraph: model, workloads, loads, repeats, machine."""
    trials = [stored.record.trial for stored in run.stored]
    of_cells = {key: place for place, cell in enumerate(_by_size(seen)) for key in cell.keys}
    ordered = sorted(run.stored, key=lambda stored: of_cells.get(stored.record.key, 0))
    asked = (stored.record.trial.model for stored in ordered)
    models = list(dict.fromkeys(f"{model.label()} ({model.dtype})" for model in asked))
    on_models = f"on the model{'s' * (len(models) > 1)} {_listed(models)}"
    workloads = list(dict.fromkeys(map(_workload, seen.cells)))
    loads = ", ".join(seen.loads)
    sizes = sorted({t.requests for t in trials})
    repeats = len({t.repeat for t in trials if stands_in_for(t.repeat) is None})
    again = sum(stands_in_for(t.repeat) is not None for t in trials)
    failed = sum(cell.failed for cell in seen.cells)
    ran = counted(len(trials) - again, "trial")
    if again:
        ran += f" as planned and {again} more in place of disturbed ones, {len(trials)} in all"
    ran += f", {failed} of which failed" if failed else ""
    if not seen.cells:
        what = "Searches for the highest sustained rate of" if seen.searched else "Sweeps of"
        systems = counted(len(seen.searched or seen.swept), "system")
        return visible(
            f"{what} {systems} {on_models}: {counted(len(trials), 'probe')}. {machine(run)}"
        )
    times = sorted(s.record.started_at for s in run.stored if s.record.started_at)
    started = f" Started {times[0][:16].replace('T', ' ')} UTC." if times else ""
    return visible(
        f"{counted(len(seen.variants), 'backend variant')} {on_models}, "
        f"{counted(len(workloads), 'workload')} ({_listed(workloads)}), "
        f"{counted(len(seen.loads), 'load')} ({loads}), {counted(repeats, 'repeat')}"
        f"{', each with engines loaded for it,' * _loaded_anew(run, repeats)} of "
        f"{_listed([f'{n:,}' for n in sizes])} requests{_lengths(trials)}: {ran}. "
        f"{machine(run)}{started}"
    )


def _loaded_anew(run: Run, repeats: int) -> bool:
    """Whether each repeat had engines of its own; a server loads what it likes."""
    records = [stored.record for stored in run.stored]
    served = any(r.backend and SERVER in r.backend.capabilities for r in records)
    return repeats > 1 and all(r.trial.reload for r in records) and not served


def _lengths(trials: Sequence[Trial]) -> str:
    """How long answers are by what was asked for; empty where they are labels."""
    found = []
    for is_exact, most in ((True, ""), (False, "at most ")):
        asked = [t.max_new_tokens for t in trials if t.ignore_eos is is_exact]
        if asked and max(asked) > 1:
            ends = sorted({min(asked), max(asked)})
            between = " or " if {*asked} == {*ends} else " to "
            found.append(f"of {most}{between.join(f'{end:,}' for end in ends)} new tokens")
    return " " + " or ".join(found) if found else ""


def _by_size(seen: Overview) -> list[Cell]:
    """Those of the smallest model first."""
    return [cell for _, own in by_model(seen) for cell in own]


def _workload(cell: Cell) -> str:
    """Without the model that stands in its label where there are several."""
    return cell.workload.removesuffix(f" on {cell.model}") if cell.model else cell.workload


def machine(run: Run) -> str:
    """``Machine:`` and its processor, cores, memory and GPUs; of several each in turn."""
    names = list(machine_names([stored.record for stored in run.stored]).values())
    return f"Machine{'s' * (len(names) > 1)}: {'; '.join(names)}."


def alerts(run: Run, seen: Overview) -> list[str]:
    """What a reader must know before comparing: mixed machines or settings, partial runs."""
    records = [stored.record for stored in run.stored]
    found = []
    environments = [record.environment for record in records]
    if (count := machines(environments)) > 1:
        fields = _listed([visible(name) for name in differing(environments)])
        found.append(
            f"The trials come from {count} machines or software stacks, which differ in {fields}: "
            "rows of different ones are listed apart and must not be compared."
        )
    trials = [r.trial for r in records]
    settings = {
        (
            (t.workload.name, t.model.label()),
            (t.requests, t.seed, t.max_new_tokens, t.model, t.ignore_eos),
            (t.sampling, t.slo, t.duration_s, t.reload),
        )
        for t in trials
    }
    if len(settings) > len({place for place, *_ in settings}):
        found.append(
            "The folder holds trials of different settings (requests, seed, answer length, "
            "sampling, objective, duration, reload or model): a backend may have several rows for "
            "one workload and load, which then name their settings."
        )
    if not run.experiment:
        found.append(
            "experiment.yaml is missing in the run's folder: copy it there, or no reference is "
            "known."
        )
    elif seen.why_no_speedup:
        found.append(f"There are no speed-ups over the reference: {seen.why_no_speedup}.")
    missing, expected = not_run(run)
    if missing:
        found.append(
            f"The run is not complete: {missing} of {expected} trials have not been run. "
            "The same command runs them."
        )
    return found


def environment(run: Run) -> list[tuple[str, str]]:
    """Terms and values of the first trial's environment, flattened, and what differs elsewhere."""
    records = [stored.record for stored in run.stored]
    found = [dict(_flat(record.environment)) for record in records]
    rows = []
    for term, first in found[0].items():
        if term in ("since invocation s", "workers"):  # of its own section
            continue
        value, more = _told(first), _elsewhere([one.get(term) for one in found])
        if term == "load average":
            more = f" (before the first of {counted(len(records), 'trial')})"
        if term == "code":
            value, more = _code(records), ""
        rows.append((term, visible(clipped(value + more, 400))))
    rows.append(("model", _model(run)))
    backends = dict.fromkeys(
        f"{r.backend.name} {r.backend.version}, {r.backend.provenance}"
        + counted_by(r.backend.options)
        for r in records
        if r.backend
    )
    rows.append(("backends", visible("; ".join(backends) or "none came up")))
    return rows


def _code(records: Sequence[TrialRecord]) -> str:
    """Whether the code that ran a cell was always the same. It differs between backends, and with
    what a workload is scored by."""
    cells: dict[tuple[str, str], set[str]] = {}
    for record in records:
        place = record.trial.engine_key(), record.trial.workload.name
        cells.setdefault(place, set()).add(str(record.environment.get("code")))
    changed = sum(len(found) > 1 for found in cells.values())
    if changed:
        every = counted(len(cells), "pair")
        return f"changed between calls of run, for {changed} of {every} of backend and workload"
    return "the same in all trials of a backend on a workload"


def _elsewhere(values: Sequence[Any]) -> str:
    """What a term has beside the first of these values: of numbers the range of all."""
    own = [value for value in values if value is not None]
    if own and all(isinstance(v, int | float) and not isinstance(v, bool) for v in own):
        ends = _told(min(own)), _told(max(own))
        return f" (over all trials: {' to '.join(ends)})" if ends[0] != ends[1] else ""
    others = sorted(set(map(_told, values[1:])) - {_told(values[0])})
    rest = f" and {len(others) - _NAMED} more" * (len(others) > _NAMED)
    return f" (in other trials: {', '.join(others[:_NAMED])}{rest})" if others else ""


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        term = f"{prefix}{key}".replace("_", " ").replace(" gib", " (GiB)")
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{prefix}{key} ")
        else:
            yield term, inner


def _told(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value)) or "none"
    return _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{k.replace('_', ' ')} {v}" for k, v in value.items())
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _model(run: Run) -> str:
    models = dict.fromkeys(stored.record.trial.model for stored in run.stored)
    words = []
    for model in models:
        parts = [f"{model.label()}, {model.dtype}"]
        parts += [f"revision {model.revision}"] if model.revision else []
        parts += [f"checksum {model.checksum[:16]}"] if model.checksum else []
        words.append(", ".join(parts))
    return visible("; ".join(words))


def filters(seen: Overview) -> list[dict[str, Any]]:
    """The page's filter boxes: name of the data attribute, title, choices (value, text)."""
    found = [
        ("variant", "Backend", [(v.id, v.label) for v in seen.variants]),
        ("workload", "Workload", [(w, w) for w in seen.workloads]),
        ("load", "Load", [(load, load) for load in seen.loads]),
        ("valid", "Validity", [(v, v) for v in ("valid", "not valid", "failed")]),
    ]
    return [{"name": n, "title": t, "choices": choices} for n, t, choices in found]


def validity_note(seen: Overview, any_marked: bool) -> str:
    """The sentence that begins the section on validity."""
    total = sum(cell.trials for cell in seen.cells)
    valid = sum(cell.valid_trials for cell in seen.cells)
    if not any_marked:
        return (
            f"All {counted(total, 'trial')} are valid: no check found a reason against the numbers."
        )
    if valid == total:
        return f"All {counted(total, 'trial')} are valid. Remarks, which concern single numbers:"
    return (
        f"{valid} of {counted(total, 'trial')} are valid. What was found against the others, and "
        "remarks, which concern single numbers:"
    )


def requests_note(blocks: Sequence[Mapping[str, Any]]) -> str:
    """How to read the answers, and how to see those left out."""
    if not blocks:
        return "No trial has answers."
    note = (
        "Equal answers (token ids, or labels) are shown once, with all who gave them; the "
        "reference's, or the first where it has none, comes first. What follows the first "
        "difference from it is marked."
    )
    if any(block["left_out"] for block in blocks):
        note += (
            " Requests with differing answers are preferred, so the ones shown are no random "
            "sample. All of them: results.load(DIR).requests in Python."
        )
    return note


def requests_finding(blocks: Sequence[Mapping[str, Any]]) -> str:
    """How many answers differ, and of how many requests there is none."""
    total, differing, without = (
        sum(block[name] for block in blocks) for name in ("total", "differing", "without")
    )
    lost = f"; {without:,} without an answer" * bool(without)
    return f"{differing:,} of {counted(total, 'request')} have differing answers{lost}."


def prompts_by_workload(run: Run, seen: Overview) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Workload label -> request id -> stored prompt row."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    read: set[tuple[str, str]] = set()
    cells = seen.by_key()
    for stored in run.stored:
        checksum, label = stored.record.trial.workload.checksum, cells[stored.record.key].workload
        if checksum is None or (checksum, label) in read:
            continue
        read.add((checksum, label))
        rows = run.store.read_prompts(checksum)
        found.setdefault(label, {}).update((str(row["request_id"]), row) for row in rows)
    return found


def _listed(words: Sequence[str] | Mapping[str, Any]) -> str:
    items = list(words)
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
