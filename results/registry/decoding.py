"""Metrics of what the decoding cost, from the counts that backends put into telemetry."""

from __future__ import annotations

from typing import Literal

from results.metrics import exit_costs, latency, plans, stages, step_time, work
from results.registry.metric import Metric, Section, TrialInputs


def _sums(t: TrialInputs) -> dict[str, float]:
    return work.totals(t.requests)


def _rates(t: TrialInputs) -> dict[str, float | None]:
    return work.rates(t.once(_sums))


def _predictions(t: TrialInputs) -> dict[str, float | None]:
    backend = t.record.backend
    return exit_costs.predictions(t.requests, backend)


def _shares(t: TrialInputs) -> dict[str, float | None]:
    return step_time.shares(t.requests, t.record, t.ceilings)


def _share(
    name: str, text: str, unit: str = "", better: Literal["larger", "smaller", ""] = ""
) -> Metric:
    return Metric(
        name=name,
        section="prediction",
        unit=unit,
        text=text,
        formula=lambda t: t.once(_shares)[name],
        better=better,
    )


def _rate(
    name: str,
    text: str,
    *,
    section: Section = "work",
    unit: str = "",
    better: Literal["larger", "smaller", ""] = "",
    pooled: Literal["median", "sum"] = "median",
) -> Metric:
    return Metric(
        name=name,
        section=section,
        unit=unit,
        text=text,
        formula=lambda t: t.once(_rates)[name],
        better=better,
        pooled=pooled,
    )


def _prediction(name: str, text: str, better: Literal["larger", ""] = "") -> Metric:
    return Metric(
        name=name,
        section="prediction",
        text=text,
        formula=lambda t: t.once(_predictions)[name],
        better=better,
    )


WORK = (
    _rate(
        "early_exit_rate",
        "layers_skipped / (layers_run + layers_skipped): the share of layer passes skipped (the "
        "early-exit paper, table 1), of the tokens after the first.",
        better="larger",
    ),
    _rate(
        "early_prediction_rate",
        "early_predictions / (early_predictions + steps): the share of inference steps that ended "
        "in an early prediction (AdaDecode, figure 5b).",
        better="larger",
    ),
    _rate(
        "rejection_rate",
        "(drafted - accepted) / drafted: drafts that verification threw away (AdaDecode, "
        "figure 5c).",
        better="smaller",
    ),
    _rate("acceptance_rate", "accepted / drafted.", better="larger"),
    _rate(
        "drafts_per_step",
        "drafted / steps: drafts that a pass through the whole model verifies, those passes that "
        "had none included.",
        unit="tokens",
    ),
    _rate(
        "tokens_per_step", "step_tokens / steps, the bonus token included.",
        unit="tokens", better="larger",
    ),
    _rate(
        "full_passes_per_token",
        "layers_run / layers_total: 1 for plain decoding, below 1 where passes are saved; "
        "discarded drafts can put it above.",
        better="smaller",
    ),
    _rate(
        "preemptions",
        "The count: times that a request gave way to others in vLLM's KV cache and was computed "
        "again, which `full_passes_per_token` does not count.",
        unit="times", better="smaller", pooled="sum",
    ),
)  # fmt: skip
BATCHES = (
    _rate("model_layers", "layers_total / steps.", section="batches", unit="layers"),
    _rate(
        "mean_exit_layer", "layers_run / steps: layers per decoded token.",
        section="batches", unit="layers", better="smaller",
    ),
    _rate(
        "early_exit_rate_own",
        "(layers_total - layers_needed) / layers_total: what would be skipped if every sequence "
        "left when it was confident itself, instead of with its batch; the most that any grouping "
        "of requests could reach.",
        section="batches", better="larger",
    ),
    _rate(
        "mean_decode_batch", "batch_rows / steps: sequences in a token's step.",
        section="batches", unit="sequences",
    ),
    _rate(
        "mixed_steps", "The count: tokens whose step also read prompt tokens.",
        section="batches", unit="tokens", pooled="sum",
    ),
    _rate("mixed_step_share", "mixed_steps / steps.", section="batches"),
    _rate("check_time_share", "check_us / forward_us.", section="batches", better="smaller"),
    _rate("fill_time_share", "fill_us / forward_us.", section="batches", better="smaller"),
)  # fmt: skip
EXITS = (
    Metric(
        name="exits_by_layer",
        section="work",
        text="Exit layer -> its `checks`, `exits` and `accepted` (`own_exits` where batches leave "
        "together), summed over the completed requests.",
        formula=lambda t: work.exits_by_layer(t.once(_sums)),
        pooled="sum",
    ),
    Metric(
        name="exits_by_batch",
        section="batches",
        text="Batch size -> the `steps` without prompts that decoded so many sequences, and the "
        "`layers` that they ran.",
        formula=lambda t: work.exits_by_batch(t.once(_sums)),
        pooled="sum",
    ),
    Metric(
        name="drafts_by_position",
        section="work",
        text="Position of a draft, from 1 -> how many there were `judged`, all before them having "
        "stood, and `accepted`. Drafts behind the end of an answer are not judged.",
        formula=lambda t: work.drafts_by_position(t.once(_sums)),
        pooled="sum",
    ),
    Metric(
        name="by_stage",
        section="work",
        text="Stage of a pipeline, from 1 -> its `passes`, their `rows` and `layers`, tokens that "
        "`left` behind it, positions that it `filled`, `pass_us` and `other_us` (prompts, fills "
        "alone), `worker_us` (the time that its workers had, added up), its processes that were "
        "`replaced`, and `window_us`: first submit to last commit.",
        formula=lambda t: stages.by_stage(t.once(_sums), latency.window_s(t.requests)),
        pooled="sum",
    ),
    Metric(
        name="plans",
        section="work",
        text="Plan of a pipeline that plans while it serves, from 1 -> `at_s` after the first "
        "input, `workers` by the layer behind which their stage ends, and how many slow ones are "
        "`left_out`. Of a trial; cells have none.",
        formula=lambda t: plans.plans(t.once(_sums)),
    ),
    Metric(
        name="planned_windows",
        section="work",
        text="Window of such a pipeline, from 1 -> `inputs` answered, and by the layer behind "
        "which a ramp stands the share `alive`, sure at no ramp so far, and its `forecast` when "
        "the window began. Of a trial; cells have none.",
        formula=lambda t: plans.windows(t.once(_sums)),
    ),
)
PREDICTIONS = (
    _prediction(
        "predicted_speedup",
        "Plain decoding's cost of the committed tokens / the cost of the passes counted, at the "
        "costs that the backend measured before the first trial: the part of the speed-up that the "
        "algorithm explains, for one request at a time.",
        better="larger",
    ),
    _prediction(
        "predicted_speedup_one_row",
        "`predicted_speedup` if rows beyond a pass's first cost nothing.",
        better="larger",
    ),
    _prediction(
        "pass_time_share",
        "The cost of the passes counted / the measured decode time. What is missing from 1 is the "
        "process between passes.",
    ),
)
STEPS = (
    _share(
        "step_s",
        "The time from first to last commit less the waits for others' prompts (`prompts_share`), "
        "summed over the requests / their `steps`: what a request waits for one pass through the "
        "model and all that goes with it.",
        unit="s",
        better="smaller",
    ),
    _share(
        "prompts_share",
        "The part of the time from first to last commit that went into reading prompts of others: "
        "of each pause between two commits in which another request's first tokens came, what is "
        "beyond the median pause without. A prompt that is read in pieces shows in the last one.",
        better="smaller",
    ),
    _share(
        "overhead_share",
        "The part of the steps' time in which neither the model ran nor drafts were made: "
        "scheduling, making inputs, choosing tokens, handing them out. First to last commit, less "
        "`pass_us` (in which the prompts that were waited for are) and `draft_us`, over first to "
        "last commit less those waits; between 0 and 1. Told by the backends on this package's own "
        "engine, and of vLLM in this process on a CPU alone: on a GPU its calls return before "
        "their work is done.",
        better="smaller",
    ),
    _share(
        "draft_share",
        "The part of the steps' time in which drafts were made outside the model's own passes "
        "(`draft_us` over first to last commit less the waits for prompts): by a draft model, a "
        "trained head, a search in the text. Told where `overhead_share` is.",
        better="smaller",
    ),
    _share(
        "floor_share",
        "The part of the steps' time that the layers and heads that ran take at the least (exit "
        "heads too; a method's own draft models not): reading their weights and, once a pass, the "
        "cache, or multiplying with them (of a verification with each draft that was judged), "
        "whichever is longer, at the rates that "
        "`decodebench doctor --bandwidth` measured for as much as one process's pass reads, the "
        "best that the run's trials tell of this machine. 1 is as fast as this machine can be "
        "without running fewer layers; unknown where a trial was faster than that by over 5%. "
        "Below a half, every ratio with this trial changes as models grow.",
        better="larger",
    ),
)
