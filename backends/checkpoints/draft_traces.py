"""What drafts were worth in a recorded run, where the option `replay` of a backend names one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from backends.checkpoints import traces
from harness.core.errors import UserError, nearest
from results.traces.recorded import DecisionTrace

REPLAY = replace(
    traces.REPLAY,
    help="what became of drafts, to replay in the place of the model's own verdict: demo (recorded "
    "from the demo model) or a file of 'decodebench trace'; default: none",
)
RECORD = "'decodebench trace' writes one of a run with 'record: true'"


def find_drafts(prefix: str, options: Mapping[str, Any], backend: str) -> Path | None:
    """The file that `replay` names, "demo" being the bundled one of the method; None where nothing
    is replayed. Raises `UserError`, which begins with `prefix`."""
    replay = options["replay"]
    if isinstance(replay, Mapping):
        raise UserError(
            f"{prefix} 'replay': rates tell nothing of chains of drafts; give {traces.DEMO} or a "
            f"trace: {RECORD}"
        )
    if replay == traces.DEMO:
        return traces.BUNDLED / f"{backend}-{options['method']}.parquet"
    return traces.find_trace(replay, backend)


def open_drafts(
    prefix: str, options: Mapping[str, Any], backend: str, own: Collection[str]
) -> DecisionTrace | None:
    """The trace, for options that can replay it; None where nothing is replayed.

    Args:
        prefix: begins each error line.
        options: of the backend; its `method` is that of the trace.
        own: the options of this method that decide what is drafted: they are the trace's.

    Raises `UserError` for a trace of another method, without drafts, or under other options.
    """
    path = find_drafts(prefix, options, backend)
    if path is None:
        return None
    found = traces.read(path)
    where = f"{prefix} 'replay': {options['replay']}"
    if found.method != backend:
        raise UserError(f"{where} is a trace of '{found.method}', not of '{backend}'")
    if (method := found.settings.get("method")) != options["method"]:
        raise UserError(f"{where} is a trace of method {method}, not of {options['method']}")
    if not any(len(row.asked) or len(row.offered) for row in found.rows):
        raise UserError(f"{where} tells lengths alone; {RECORD}")
    if not any(row.drafted.any() for row in found.rows):
        raise UserError(f"{where} has no drafts: none paid where it was recorded; give 'drafts'")
    for name in own:
        if options[name] != found.settings.get(name):
            raise UserError(
                f"{prefix} '{name}': is {options[name]}; expected {found.settings.get(name)}, that "
                "of the trace: another one would draft other tokens"
            )
    return found


def check_workload(prefix: str, trace: DecisionTrace, workload: str) -> None:
    """Raise `UserError` for a workload that the trace has no request of."""
    if workload not in trace.workloads:
        raise UserError(
            f"{prefix} 'replay': the trace has no request of workload '{workload}', and drafts "
            f"stand in another one as they stand there; {nearest(workload, trace.workloads)}"
        )


def remarks(prefix: str, trace: DecisionTrace, drafts: int | str) -> list[str]:
    """What is no longer a repetition of the recorded run, where it had another number of drafts."""
    recorded = trace.settings.get("drafts")
    if drafts == recorded and isinstance(drafts, int):
        return []
    return [
        f"{prefix} 'drafts': is {drafts}, and the trace was recorded with {recorded}: whether a "
        "draft stands is taken from its position, and drawn from the answer's others where the "
        "recorded run drafted none"
    ]
