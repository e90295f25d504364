"""A trace from stored trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.core.decisions import Decisions
from harness.core.errors import UserError
from harness.core.nouns import Generation, TrialRecord
from results.traces.recorded import DecisionTrace, TraceRow

EXITS = {
    "adadecode": ("exit_layers", "gamma"),
    "own-early-exit": ("layers", "thresholds"),
    "tetris": ("layers", "thresholds"),
    "vllm-early-exit": ("layers", "thresholds"),
}
"""By backend: what its options in force call the exit layers and their thresholds."""
UNKNOWN = -1


def make_trace(
    records: Sequence[TrialRecord], prompt_tokens: Mapping[str, int]
) -> tuple[DecisionTrace, int]:
    """A trace of trials of one backend with one set of options, with their generations; the number
    of requests that are left out since they did not end well.

    Args:
        records: at least one; of a request that several have, the first one's is taken.
        prompt_tokens: by request id, as far as known.

    Raises `UserError` where no request ended well.
    """
    backend = records[0].backend
    if backend is None:
        raise UserError(f"trial {records[0].key}: the backend never came up")
    has_decisions = has_recorded(records)
    exits, thresholds = _exits(records[0].trial.backend, backend.options)
    if not has_decisions:
        exits = thresholds = ()
    told = [(r.trial.workload.name, g) for r in records for g in r.generations]
    rows: dict[str, TraceRow] = {}
    for workload, generation in told:
        if generation.finished in ("stop", "length") and generation.token_ids:
            known = prompt_tokens.get(generation.request_id, UNKNOWN)
            row = _row(workload, generation, known, len(exits))
            rows.setdefault(generation.request_id, row)
    if not rows:
        raise UserError(f"trial {records[0].key}: no request ended well")
    left_out = len({g.request_id for _, g in told}) - len(rows)
    trial = records[0].trial
    trace = DecisionTrace(
        method=trial.backend,
        depth=_depth([g for _, g in told]),
        exits=exits,
        thresholds=thresholds,
        settings=_plain(backend.options),
        model=trial.model.name,
        checksum=trial.model.checksum,
        rows=tuple(rows.values()),
    )
    return trace, left_out


def _exits(name: str, options: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The layers after which confidence was compared with a threshold, and the thresholds."""
    layers, thresholds = (options.get(key, []) for key in EXITS.get(name, ("", "")))
    if len(layers) != len(thresholds):  # where a step leaves at layers given beforehand
        return (), ()
    return tuple(layers), tuple(map(float, thresholds))


def has_recorded(records: Sequence[TrialRecord]) -> bool:
    """Whether the backend recorded its decisions."""
    return any(g.decisions is not None for r in records for g in r.generations)


def _row(workload: str, generation: Generation, prompt_tokens: int, exits: int) -> TraceRow:
    finished = generation.finished
    assert finished is not None
    decided = generation.decisions or _from_commits(generation)
    shape = (len(decided.positions), exits)
    return TraceRow(
        workload,
        generation.request_id,
        prompt_tokens,
        len(generation.token_ids),
        finished,
        np.array(decided.positions, np.int32),
        np.array(decided.confidence, np.float32).reshape(shape),
        np.array(decided.agrees, np.int8).reshape(shape),
        *(
            np.array(x, np.int32)
            for x in (
                *(decided.drafted, decided.accepted, decided.batch),
                *(decided.asked, decided.offered),
            )
        ),
    )


def _from_commits(generation: Generation) -> Decisions:
    """What the sizes of commits tell: the prompt's own apart, each is a pass, whose last token is
    the model's own. How many drafts were thrown away, and who else was under way, they do not."""
    sizes = generation.commit_tokens[1:]
    drafts = "drafted" in generation.telemetry
    return Decisions(
        drafted=[UNKNOWN if drafts else 0] * len(sizes),
        accepted=[size - 1 for size in sizes],
        batch=[UNKNOWN] * len(sizes),
    )


def _depth(generations: Sequence[Generation]) -> int | None:
    """The model's layers, from the layer passes that plain decoding would have taken: those of all
    tokens but the prompt's own."""
    for generation in generations:
        passes, tokens = generation.telemetry.get("layers_total"), len(generation.token_ids) - 1
        if passes and generation.finished in ("stop", "length"):
            return round(passes / tokens)
    return None


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    simple = (str, int, float, list, type(None))
    return {name: value for name, value in options.items() if isinstance(value, simple)}
