"""What a replay of drafts on our engine has from its trace, in the place of options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backends.checkpoints.draft_heads.files import EAGLE3
from backends.checkpoints.draft_models import AUTO
from backends.checkpoints.draft_traces import open_drafts
from backends.own.drafting.sublayer_sets import ATTENTION, MLP
from harness.core.errors import UserError
from results.traces.recorded import DecisionTrace

NAME = "speculative"
PREFIX = f"backend '{NAME}': option"
STATES_AFTER = "states_after"
"""Layers after which an EAGLE-3 head reads states, among the options that took effect."""

Options = Mapping[str, Any]

OWN: Mapping[str, tuple[str, ...]] = {
    "draft_model": ("threshold",),
    EAGLE3: ("threshold",),
    "prompt_lookup": ("lookup_min", "lookup_max"),
    "layerskip": (),
    "self_speculation": ("threshold",),
    "swift": ("threshold", "skip"),
    "lookahead": ("window", "ngram", "guesses", "pool_prompt"),
}
"""By method, its options that a replay has from the trace."""


def find_trace(options: Options) -> DecisionTrace | None:
    """What is replayed; None where nothing is. Raises `UserError` for a trace that does not fit the
    options."""
    return open_drafts(PREFIX, options, NAME, OWN[options["method"]])


def threshold(options: Options) -> float:
    """What a draft model's probability is held against: in a replay nothing, since the trace says
    how long chains are."""
    return float(options["threshold"]) if options["replay"] is None else 0.0


def exit_layer(layers: int, options: Options) -> int:
    """As given, or at a quarter of the depth; in a replay at the trace's share of it. Raises
    `UserError` where a replay would draft elsewhere."""
    layer, trace = options["exit_layer"], find_trace(options)
    if trace is None:
        return max(1, layers // 4) if layer == AUTO else int(layer)
    recorded = trace.settings.get("exit_layer")
    if not isinstance(recorded, int) or not trace.depth:
        raise UserError(f"{PREFIX} 'replay': the trace does not tell its exit_layer")
    own = min(max(round(recorded / trace.depth * layers), 1), layers - 1)
    if layer not in (AUTO, own):
        raise UserError(
            f"{PREFIX} 'exit_layer': is {layer} of {layers}; expected {own}, the share of the "
            f"depth at which the trace was recorded (layer {recorded} of {trace.depth})"
        )
    return own


def traced_states(layers: int, options: Options) -> list[int]:
    """The layers of a model of `layers` after which a replayed EAGLE-3 head reads states: at the
    shares of the depth at which the recorded one did, each another layer. Raises `UserError`."""
    trace = find_trace(options)
    assert trace is not None
    recorded = _layers(trace, STATES_AFTER, trace.depth)
    found = {min(max(round(x / (trace.depth or 1) * layers), 1), layers) for x in recorded}
    if len(found) < len(recorded):
        raise UserError(
            f"{PREFIX} 'replay': the recorded head reads states after {len(recorded)} layers of "
            f"{trace.depth}; a model of {layers} has no such layers"
        )
    return sorted(found)


def traced_sublayers(trace: DecisionTrace) -> tuple[list[int], list[int], int]:
    """The attention and the MLP sublayers that the recorded drafts left out, and of how many
    layers. Raises `UserError` for a trace that does not tell."""
    attention, mlp = (_layers(trace, key, (trace.depth or 0) - 1) for key in (ATTENTION, MLP))
    return attention, mlp, trace.depth or 0


def _layers(trace: DecisionTrace, key: str, last: int | None) -> list[int]:
    named = trace.settings.get(key)
    if (
        not isinstance(named, list)
        or any(type(layer) is not int or not 0 <= layer <= (last or 0) for layer in named)
        or len(set(named)) < len(named)
    ):
        raise UserError(f"{PREFIX} 'replay': the trace does not tell its {key}")
    return named
