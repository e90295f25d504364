"""How much computing the output cost: rates from the counts that backends put into telemetry.

Counts add up over a request's commits. A backend reports those that mean something for it; a rate
is None unless its counts are there. Sums run over the completed requests of a trial.

| count | meaning |
|---|---|
| `drafted` | tokens proposed before verification (draft model, n-gram, early prediction) |
| `accepted` | drafted tokens that verification kept |
| `early_predictions` | tokens predicted at an intermediate layer (AdaDecode) |
| `steps` | passes through the whole model after the prompt's own |
| `step_tokens` | tokens that those passes committed, the bonus token included |
| `layers_run` | layer passes after the prompt's; a pass over several positions counts once |
| `layers_skipped` | layer passes left out because the request exited early |
| `layers_total` | layers of the model x tokens committed after the prompt's pass: plain decoding |
| `top2_margin@I` | the logit margin before output token I (see `results.agreement`) |
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from results.arrays import RequestArrays
from results.latency import later_tokens


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
