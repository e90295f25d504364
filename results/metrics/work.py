"""How much computing the output cost: rates from the counts that backends put into telemetry.

Counts add up over a request's commits. A backend reports those that mean something for it; a rate
is None unless its counts are there. Sums run over the completed requests of a trial.

| count | meaning |
|---|---|
| `drafted` | tokens proposed before verification (draft model, n-gram, early prediction) |
| `accepted` | drafted tokens that verification kept |
| `judged_at_I` | drafts at position I, from 1, all before which stood |
| `accepted_at_I` | those of them that verification kept |
| `early_predictions` | tokens predicted at an intermediate layer (AdaDecode) |
| `checks_layer_L` | times that the exit head after layer L was evaluated; L counts from 1 |
| `exits_layer_L` | early predictions made there; they add up to `early_predictions` |
| `accepted_layer_L` | those of them that verification kept |
| `steps` | passes through the whole model after the prompt's own |
| `step_tokens` | tokens that those passes committed, the bonus token included |
| `layers_run` | layer passes after the prompt's; a pass over several positions counts once |
| `layers_skipped` | layer passes left out because the request exited early |
| `layers_total` | layers of the model x tokens committed after the prompt's pass: plain decoding |
| `set_steps` | steps of the search for sublayers to leave out while decoding (SWIFT) |
| `skipped_attention_L`, `skipped_mlp_L` | left out by drafts as the answer ended; L from 0 |
| `preemptions` | times that the request gave way to others in the KV cache, and was read again |
| `top2_margin@I` | the logit margin before output token I (see `results.compare.agreement`) |

A backend whose whole batch leaves early together (`vllm-early-exit`) counts, for each token that it
decodes, what the step did that decoded it. So a step of B sequences is counted B times, and rates
are averages over tokens, not over steps. `own-early-exit`, whose sequences leave by themselves,
counts the same of each token; its rows are the sequences under way when the token was decided.

| count | meaning |
|---|---|
| `checks_layer_L`, `exits_layer_L` | that step asked for confidence after layer L; left there |
| `own_exits_layer_L` | L is the first layer after which this sequence was confident |
| `layers_needed` | that layer, or all layers of the model: what an exit of its own would have run |
| `mixed_steps` | the step also read prompt tokens, and so ran all layers and checked nothing |
| `batch_rows` | sequences that the step decoded |
| `decode_steps_batch_B` | the step decoded B sequences and read no prompt |
| `decode_layers_batch_B` | the layers that it ran |
| `forward_us` | microseconds of the whole forward pass but for the head, divided by B |
| `check_us`, `fill_us` | those of its checks, and of filling the caches of skipped layers |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

from harness.core.names import PREEMPTIONS
from results.metrics.arrays import RequestArrays
from results.metrics.latency import later_tokens

EXIT_COUNTS = ("checks", "exits", "accepted")
"""What is counted at each exit layer; telemetry has it as NAME_layer_L."""
BATCH_COUNTS = ("checks", "exits", "own_exits")
"""The same where a batch leaves together."""
_BY_LAYER = re.compile(r"(checks|exits|accepted|own_exits)_layer_(\d+)")
_BY_POSITION = re.compile(r"(judged|accepted)_at_(\d+)")
_BY_BATCH = re.compile(r"decode_(steps|layers)_batch_(\d+)")
Counts = dict[str, dict[str, float]]
"""Exit layer or batch size (as text, as JSON has keys), ascending -> counts by name."""


def totals(requests: RequestArrays) -> dict[str, float]:
    """Each count summed over the completed requests. `step_tokens` is the number of tokens after
    the first commit where the backend reports `steps` alone; labels have none."""
    sums = {
        name: float(np.nansum(values[requests.completed]))
        for name, values in requests.counts.items()
        if not np.isnan(values[requests.completed]).all()
    }
    if "steps" in sums and requests.labels is None:
        sums.setdefault("step_tokens", float(np.sum(later_tokens(requests))))
    return sums


def rates(sums: Mapping[str, float]) -> dict[str, float | None]:
    """All work metrics by name; each formula is the quotient of two sums."""
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
        "drafts_per_step": ratio(drafted, steps),
        "tokens_per_step": ratio(sums.get("step_tokens"), steps),
        "full_passes_per_token": ratio(run, sums.get("layers_total")),
        PREEMPTIONS: sums.get(PREEMPTIONS),
        **_batch_rates(sums),
    }


def _batch_rates(sums: Mapping[str, float]) -> dict[str, float | None]:
    """Those of a backend whose batches leave early together; None for any other."""
    total, needed, forward = (sums.get(n) for n in ("layers_total", "layers_needed", "forward_us"))
    steps = sums.get("steps") if "batch_rows" in sums else None
    spared = total - needed if total is not None and needed is not None else None
    return {
        "model_layers": ratio(total, steps),
        "mean_exit_layer": ratio(sums.get("layers_run"), steps),
        "early_exit_rate_own": ratio(spared, total),
        "mean_decode_batch": ratio(sums.get("batch_rows"), steps),
        "mixed_steps": sums.get("mixed_steps", 0.0) if steps is not None else None,
        "mixed_step_share": ratio(sums.get("mixed_steps", 0.0), steps),
        "check_time_share": ratio(sums.get("check_us", 0.0), forward),
        "fill_time_share": ratio(sums.get("fill_us", 0.0), forward),
    }


def ratio(above: float | None, below: float | None) -> float | None:
    """The quotient; None where either is missing or the divisor is 0."""
    return above / below if above is not None and below else None


def exits_by_layer(sums: Mapping[str, float]) -> Counts | None:
    """What was counted at each exit layer, 0 where one is not reported; None without exit layers.
    The names are `EXIT_COUNTS`, and of a backend whose batches leave together `BATCH_COUNTS`."""
    names = BATCH_COUNTS if "batch_rows" in sums else EXIT_COUNTS
    return {
        layer: {name: counts.get(name, 0.0) for name in names}
        for layer, counts in _by_number(sums, _BY_LAYER).items()
    } or None


def exits_by_batch(sums: Mapping[str, float]) -> Counts | None:
    """For each batch size B the `steps` that decoded B sequences and read no prompt, and the
    `layers` that they ran; None where no such step was counted."""
    return {
        size: {name: value / int(size) for name, value in counts.items()}
        for size, counts in _by_number(sums, _BY_BATCH).items()
    } or None


def drafts_by_position(sums: Mapping[str, float]) -> Counts | None:
    """For each position of a draft, from 1, how many were `judged` and `accepted`; None without."""
    return {
        place: {"judged": 0.0, "accepted": 0.0, **counts}
        for place, counts in _by_number(sums, _BY_POSITION).items()
    } or None


def added(parts: Iterable[Counts | None]) -> Counts | None:
    """Counts of several trials as one; None where none has any."""
    sums: dict[int, dict[str, float]] = {}
    for part in parts:
        for number, counts in (part or {}).items():
            own = sums.setdefault(int(number), {})
            for name, value in counts.items():
                own[name] = own.get(name, 0.0) + value
    return {str(number): sums[number] for number in sorted(sums)} or None


def _by_number(sums: Mapping[str, float], pattern: re.Pattern[str]) -> Counts:
    found: dict[int, dict[str, float]] = {}
    for name, value in sums.items():
        if match := pattern.fullmatch(name):
            found.setdefault(int(match[2]), {})[match[1]] = value
    return {str(number): found[number] for number in sorted(found)}
