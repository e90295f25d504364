"""What drafts are worth in a recorded run, or by rates, where the option `replay` names either."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from backends.checkpoints import traces
from harness.core.errors import UserError, nearest
from results.traces.rates import Rates, TraceSource, parse_rates
from results.traces.recorded import DecisionTrace

REPLAY = replace(
    traces.REPLAY,
    help="what became of drafts, to replay in the place of the model's own verdict: demo (recorded "
    "from the demo model), a file of 'decodebench trace', or rates with an 'acceptance'; default: "
    "none",
)
STATES_AFTER = "states_after"
"""Layers after which an EAGLE-3 head reads states, among the options that took effect."""
SEARCHES = ("prompt_lookup", "ngram", "suffix")
"""Methods that draft what they find in the text, which may be nothing."""
RECORD = "'decodebench trace' writes one of a run with 'record: true'"


def find_drafts(prefix: str, options: Mapping[str, Any], backend: str) -> Path | None:
    """The file that `replay` names, "demo" being the bundled one of the method; None for rates and
    where nothing is replayed. Raises `UserError`, which begins with `prefix`."""
    replay = options["replay"]
    if replay != traces.DEMO:
        return traces.find_trace(replay, backend)
    found = traces.BUNDLED / f"{backend}-{options['method']}.parquet"
    if not found.is_file():
        raise UserError(
            f"{prefix} 'replay': no trace of method {options['method']} is bundled; {RECORD}"
        )
    return found


def open_drafts(
    prefix: str,
    options: Mapping[str, Any],
    backend: str,
    own: Collection[str],
    rated: Collection[str],
) -> TraceSource | None:
    """The trace or the rates, for options that can replay them; None where nothing is replayed.

    Args:
        prefix: begins each error line.
        options: of the backend; its `method` is that of the trace.
        own: the options of this method that decide what is drafted: they are the trace's.
        rated: methods whose drafts rates tell all of.

    Raises `UserError` for a trace of another method, without drafts, or under other options, and
    for rates without an acceptance or for another method.
    """
    if isinstance(options["replay"], Mapping):
        return _rates(f"{prefix} 'replay'", options["replay"], options["method"], rated)
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


def _rates(where: str, given: Mapping[str, Any], method: str, rated: Collection[str]) -> Rates:
    if method not in rated:
        raise UserError(
            f"{where}: rates tell how many drafts stand, and {method} needs more of a trace; give "
            f"one, or method {', '.join(rated)}"
        )
    found = parse_rates(given, where)
    if not found.chain:
        raise UserError(
            f"{where}.acceptance: is missing: how often a draft stands, as a number, a list by its "
            "place, or {length, drafts}"
        )
    if found.correlation:
        raise UserError(
            f"{where}.correlation: has no meaning for drafts, since a verification begins behind "
            "one that fell"
        )
    if found.found != 1 and method not in SEARCHES:
        raise UserError(f"{where}.found: belongs to a search of the text, and {method} is none")
    return found


def read_after(prefix: str, trace: TraceSource, layers: int) -> list[int]:
    """After which layers of a model of so many a head of random weights reads states in a replay:
    at the shares of the depth at which the recorded one did, each another layer; with rates where
    published EAGLE-3 heads do (vLLM's `get_eagle3_default_aux_hidden_state_layers`). Raises
    `UserError`."""
    if isinstance(trace, DecisionTrace):
        recorded = layers_told(prefix, trace, STATES_AFTER, trace.depth)
        if not recorded:
            raise UserError(f"{prefix} 'replay': the trace does not tell its {STATES_AFTER}")
        found = {min(max(round(x / (trace.depth or 1) * layers), 1), layers) for x in recorded}
        count, head = len(recorded), "the recorded head"
        where = f"{count} layers of {trace.depth}"
    else:
        found = {2, layers // 2, layers - 3} & set(range(1, layers + 1))
        count, head, where = 3, "an EAGLE-3 head", "3 layers"
    if len(found) < count:
        raise UserError(
            f"{prefix} 'replay': {head} reads states after {where}; a model of {layers} has no "
            "such layers"
        )
    return sorted(found)


def layers_told(prefix: str, trace: DecisionTrace, key: str, last: int | None) -> list[int]:
    """Layers up to `last` among the options under which a trace was recorded. Raises `UserError`
    for a trace that does not tell them."""
    named = trace.settings.get(key)
    if (
        not isinstance(named, list)
        or any(type(layer) is not int or not 0 <= layer <= (last or 0) for layer in named)
        or len(set(named)) < len(named)
    ):
        raise UserError(f"{prefix} 'replay': the trace does not tell its {key}")
    return named


def check_workload(prefix: str, trace: TraceSource | None, workload: str) -> None:
    """Raise `UserError` for a workload that a trace has no request of."""
    if isinstance(trace, DecisionTrace) and workload not in trace.workloads:
        raise UserError(
            f"{prefix} 'replay': the trace has no request of workload '{workload}', and drafts "
            f"stand in another one as they stand there; {nearest(workload, trace.workloads)}"
        )


def remarks(prefix: str, trace: TraceSource | None, drafts: int | str) -> list[str]:
    """What is no longer a repetition of the recorded run, where it had another number of drafts."""
    if not isinstance(trace, DecisionTrace):
        return []
    recorded = trace.settings.get("drafts")
    if drafts == recorded and isinstance(drafts, int):
        return []
    return [
        f"{prefix} 'drafts': is {drafts}, and the trace was recorded with {recorded}: whether a "
        "draft stands is taken from its position, and drawn from the answer's others where the "
        "recorded run drafted none"
    ]
