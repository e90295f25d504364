"""How much computing the output cost: rates from the counts that backends put into telemetry.

Counts add up over a request's commits. A backend reports those that mean something for it; a rate
is None unless its counts are there. Sums run over the completed requests of a trial.

| count | meaning |
|---|---|
| `drafted` | tokens proposed before verification (draft model, n-gram, early prediction) |
| `accepted` | drafted tokens that verification kept |
| `early_predictions` | tokens predicted at an intermediate layer (AdaDecode) |
| `checks_layer_L` | times that the exit head behind layer L was evaluated; L counts from 1 |
| `exits_layer_L` | early predictions made there; they add up to `early_predictions` |
| `accepted_layer_L` | those of them that verification kept |
| `steps` | passes through the whole model after the prompt's own |
| `step_tokens` | tokens that those passes committed, the bonus token included |
| `layers_run` | layer passes after the prompt's; a pass over several positions counts once |
| `layers_skipped` | layer passes left out because the request exited early |
| `layers_total` | layers of the model x tokens committed after the prompt's pass: plain decoding |
| `top2_margin@I` | the logit margin before output token I (see `results.agreement`) |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

from results.arrays import RequestArrays
from results.latency import later_tokens

EXIT_COUNTS = ("checks", "exits", "accepted")
"""What is counted at each exit layer; telemetry has it as NAME_layer_L."""
_EXIT_COUNT = re.compile(r"(checks|exits|accepted)_layer_(\d+)")
ByLayer = dict[str, dict[str, float]]
"""Exit layer (as text, as JSON has keys), ascending -> each of `EXIT_COUNTS`."""


def totals(requests: RequestArrays) -> dict[str, float]:
    """Each count summed over the completed requests. `step_tokens` is the number of tokens after
    the first commit where the backend reports `steps` alone."""
    sums = {
        name: float(np.nansum(values[requests.completed]))
        for name, values in requests.counts.items()
        if not np.isnan(values[requests.completed]).all()
    }
    if "steps" in sums:
        sums.setdefault("step_tokens", float(np.sum(later_tokens(requests))))
    return sums


def rates(sums: Mapping[str, float]) -> dict[str, float | None]:
    """All work metrics by name; each formula is the quotient of two sums."""

    def ratio(above: float | None, below: float | None) -> float | None:
        return above / below if above is not None and below else None

    drafted, accepted = sums.get("drafted"), sums.get("accepted")
    steps, early = sums.get("steps"), sums.get("early_predictions")
    run, skipped = sums.get("layers_run"), sums.get("layers_skipped")
    both = run + skipped if run is not None and skipped is not None else None
    rejected = drafted - accepted if drafted is not None and accepted is not None else None
    inferences = early + steps if early is not None and steps is not None else None
    return {
        "early_exit_rate": ratio(skipped, both),
        "early_prediction_rate": ratio(early, inferences),
        "rejection_rate": ratio(rejected, drafted),
        "acceptance_rate": ratio(accepted, drafted),
        "tokens_per_step": ratio(sums.get("step_tokens"), steps),
        "full_passes_per_token": ratio(run, sums.get("layers_total")),
    }


def exits_by_layer(sums: Mapping[str, float]) -> ByLayer | None:
    """The counts of each exit layer, 0 where one is not reported; None without exit layers."""
    found: dict[int, dict[str, float]] = {}
    for name, value in sums.items():
        if match := _EXIT_COUNT.fullmatch(name):
            counts = found.setdefault(int(match[2]), dict.fromkeys(EXIT_COUNTS, 0.0))
            counts[match[1]] = value
    return {str(layer): found[layer] for layer in sorted(found)} or None


def added(parts: Iterable[ByLayer | None]) -> ByLayer | None:
    """Counts by layer of several trials as one; None where none has any."""
    sums: dict[str, float] = {}
    for part in parts:
        for layer, counts in (part or {}).items():
            for name, value in counts.items():
                key = f"{name}_layer_{layer}"
                sums[key] = sums.get(key, 0.0) + value
    return exits_by_layer(sums)
