"""What a replay of drafts on our engine has from its trace, in the place of options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backends.checkpoints.draft_heads.files import EAGLE3
from backends.checkpoints.draft_models import AUTO
from backends.checkpoints.draft_traces import layers_told, open_drafts
from backends.own.drafting.sublayer_sets import ATTENTION, MLP
from harness.core.errors import UserError
from results.traces.rates import TraceSource
from results.traces.recorded import DecisionTrace

NAME = "speculative"
PREFIX = f"backend '{NAME}': option"

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
RATED = ("draft_model", EAGLE3, "prompt_lookup", "layerskip")
"""Methods whose chains differ in their lengths and in what stands of them alone."""


def find_trace(options: Options) -> TraceSource | None:
    """What is replayed; None where nothing is. Raises `UserError` for a trace or rates that do not
    fit the options."""
    return open_drafts(PREFIX, options, NAME, OWN[options["method"]], RATED)


def threshold(options: Options) -> float:
    """What a draft model's probability is held against: in a replay nothing, since the trace says
    how long chains are."""
    return float(options["threshold"]) if options["replay"] is None else 0.0


def exit_layer(layers: int, options: Options) -> int:
    """As given, or at a quarter of the depth; in a replay at the trace's share of it. Raises
    `UserError` where a replay would draft elsewhere."""
    layer, trace = options["exit_layer"], find_trace(options)
    if not isinstance(trace, DecisionTrace):
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


def traced_sublayers(trace: DecisionTrace) -> tuple[list[int], list[int], int]:
    """The attention and the MLP sublayers that the recorded drafts left out, and of how many
    layers. Raises `UserError` for a trace that does not tell."""
    last = (trace.depth or 0) - 1
    attention, mlp = (layers_told(PREFIX, trace, key, last) for key in (ATTENTION, MLP))
    return attention, mlp, trace.depth or 0
