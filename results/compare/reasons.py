"""The reasons for which a trial, or what compares it, is not to be believed: each said once.

Whoever finds one begins its text with the slug and a colon: `harness.measure.checks` and `.noise`
before the trial is stored, `results.compare.validity` when it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.core.nouns import IMPORTED, Validity

CELL_NOT_VALID = "cell-not-valid"
FAILURES = "failures"
CODE_CHANGED = "code-changed"
TOO_FEW_SAMPLES = "too-few-samples"
NO_MEDIAN = "too-few-for-a-median"
"""What `too-few-samples` comes to where it names the median: see `slug`."""
LENGTH_MISMATCH = "length-mismatch"
LEFT_OUT = "repeats-left-out"
NOT_CHECKED = "noise-not-checked"
LENGTHS_CUT = "lengths-cut"
CALIBRATED_OTHERWISE = "calibrated-otherwise"
PROMPTS_SEEN = "prompts-seen"
REPLAYED_OTHERWISE = "replayed-otherwise"
NOT_WARMED_UP = "not-warmed-up"
PROMPTS_REPEATED = "prompts-repeated"
UNSCORED = "unscored"
KV_STARVED = "kv-starved"


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason by its slug, with what was found, for docs/metrics.md."""

    slug: str
    concerns: Literal["times", "all", "comparison"]
    """Times only, where answers stay what they are; anything of the trial; or only what compares
    it while the trial itself stands."""
    text: str
    passes: bool = False
    """Whether it was the moment's: the same trial, measured again, may be free of it. A cell does
    without such a repeat where others are left."""


REASONS = (
    Reason(
        FAILURES,
        "all",
        "requests that failed or did not finish, or a trial that did not end well",
    ),
    Reason(
        CODE_CHANGED,
        "all",
        "repeats of one cell that several versions of the code ran, or that had other exit heads: "
        "a run that was stopped after an edit, repeats that the experiment no longer asks for, or "
        "trials of another folder. `run` measures those of older versions again, `--fresh` all",
    ),
    Reason(
        "client-late",
        "times",
        "p99 of `client_lag_s`, of `stamp_lag_s` or of its first commits' values over 5 ms. More "
        "`clients` may help. An engine inside the process keeps the loop from submitting while it "
        "computes a step: that lateness is the system's, counts in `ttft_s`, and is in "
        "`submit_lag_s` only",
        passes=True,
    ),
    Reason(
        "cache-not-cold",
        "times",
        "prompt tokens that came from a cache nobody asked for. `prefix_caching: true` asks for "
        "it: in `vllm` it turns the cache on, in `http` it says that the server's is meant to be",
    ),
    Reason(
        "cache-unknown",
        "times",
        "a server that neither drops its cache between trials (capability `cold-reset`; "
        "`keeps-prompts`: a KV connector may hold them all the same) nor counts the prompt tokens "
        "that came from it (`cache-telemetry`), without `prefix_caching: true` "
        "(its cache is meant) or `none` (it has none): later trials ask the same prompts, so its "
        "numbers may be warm and nobody can tell. Dropping is enough while prompts are asked once "
        "and have little in common: where over 10% of a trial's prompt tokens begin another of its "
        "prompts too, as in a load of a time that asks them again, counting is needed",
    ),
    Reason("output-clipped", "all", "answers ended for length before the tokens asked for"),
    Reason(
        "token-counts",
        "all",
        "a server's usage, where it gives one, says other numbers of tokens than were counted, or "
        "more were counted than asked for: chunks were lost, or `token_counting` is by a tokenizer "
        "that is not the server's or takes the chunks' texts apart otherwise. In an answer that "
        "stopped, one token may differ, which ended it",
    ),
    Reason(
        LENGTH_MISMATCH,
        "comparison",
        "a remark: answers whose lengths differ from the reference's, by so much in all. What "
        "compares unequal work is void (`throughput_ratio`, `request_per_s`, `e2e_s`, goodput in "
        "requests); time per token, time to first token and quality stand",
    ),
    Reason(
        "not-lossless",
        "all",
        "a backend that promises plain decoding's text gave other token ids than `autoregressive` "
        "in the same cell and repeat, on the same kernels and threads. Backends that name no "
        "kernels (vLLM's) are not held to it: other kernels round differently, which is what "
        "`noise_floor` is for",
    ),
    Reason(
        "clocks-throttled",
        "times",
        "thermal events of the processor's cores or packages, or a GPU of the engine's slowed "
        "down by heat or by the power brake: looked at every half second during the load, and "
        "taken from NVML's count of thermal violations where the device has one. The power cap, "
        "which GPUs run into under full load, is no reason",
        passes=True,
    ),
    Reason(
        "machine-noisy",
        "times",
        "over 1% of CPU time stolen by other guests, over 1% of the time in which a CPU quota "
        "(control group, container) held threads back, over 10% used by others, another process "
        "that computed on a GPU of the engine's, a machine that slept for over 1 s, half a second "
        "in which the process that drives the engine did not run (it was stopped or frozen), or "
        "the same "
        "work 20% slower at one end of the trial, at the fastest moment of up to 0.4 s there. CPU "
        "time is that of the cores that the run may use. What a GPU computes is not the host's: "
        "the share of the time in which one of the engine's did counts as steady",
        passes=True,
    ),
    Reason(
        NOT_CHECKED,
        "times",
        "a remark: a server's own machine cannot be seen from here, or the driver does not list "
        "the engine's processes (as in a container), so that nothing says who else computed on its "
        'GPU. `show` and the page have "not checked" for such a trial, not "valid"',
    ),
    Reason(
        IMPORTED,
        "times",
        "a remark: another tool measured it (`decodebench import`), and what its latencies mean",
    ),
    Reason(
        TOO_FEW_SAMPLES,
        "times",
        "a remark: fewer than 20 or 100 completed requests, see above",
    ),
    Reason(
        NO_MEDIAN,
        "times",
        "fewer than 5 completed requests, so that not even a median says anything: in a record it "
        "is a `too-few-samples` that names p50",
    ),
    Reason(
        NOT_WARMED_UP,
        "times",
        "a remark: not one request of the warm-up was answered, and the first one's error: what is "
        "used for the first time was so in the trial",
    ),
    Reason(
        KV_STARVED,
        "times",
        "a remark: so many `preemptions` in a KV cache of so many tokens: requests in flight did "
        "not fit together, gave way to others and were computed again, which no other count of "
        "work has. A larger cache (`kv_cache_gib`) or fewer requests at once (`max_num_seqs`) "
        "makes it another engine. Told by vLLM inside the process",
    ),
    Reason(
        LENGTHS_CUT,
        "times",
        "a remark: `max_new_tokens` is below the lengths that the workload's rows give their "
        "answers (`recorded_lengths`, `output_tokens`), and cuts so many of them",
    ),
    Reason(
        CALIBRATED_OTHERWISE,
        "times",
        "a remark: the prompts by which early-exit thresholds were calibrated are of other "
        "workloads, from another source or file, or chosen by other options, or their answers "
        "might be of another length, so that the calibration's statement does not speak of "
        "this trial",
    ),
    Reason(
        PROMPTS_SEEN,
        "times",
        "a remark: so many of the prompts are among those that exit heads, a classifier, a draft "
        "head or a calibration of the backend's options was fitted to, which flatters quality and "
        "acceptance. Files of before this was stored do not say",
    ),
    Reason(
        PROMPTS_REPEATED,
        "times",
        "a remark: so many requests ask a prompt again, since a source has fewer rows than there "
        "are requests, or rows that are alike (a load that lasts for `duration_s` does so by "
        "design and is remarked only where it matters more). Where drafts come from earlier "
        "answers (vLLM's `suffix`), such a request finds its own, which flatters acceptance and "
        "speed",
    ),
    Reason(
        UNSCORED,
        "times",
        "a remark: so many answers have no score, and why the first one has none. The regular "
        "expression of a row took over 1 s of CPU time (after 30 of them the other rows with such "
        "a scorer have none either), or HumanEval's tests or prompt of a row cannot run in the "
        "sandbox, which has Python's standard library alone, so that no program could pass",
    ),
    Reason(
        REPLAYED_OTHERWISE,
        "times",
        "a remark: the trace that was replayed has no request of the workload, so that exits and "
        "lengths are those of other workloads, or so many of its answers were cut as they were "
        "recorded and end there, before `max_new_tokens`",
    ),
    Reason(
        "other-draws",
        "comparison",
        "a remark: sampled answers of two engines that turn a seed into other random numbers (each "
        "engine its own, and vLLM's rejection sampling others than its plain decoding): texts "
        "differ though the distribution may be the same, so that what compares them is void",
    ),
    Reason(
        "native-other-draws",
        "comparison",
        "as `other-draws`, of `autoregressive` where that is not the reference",
    ),
    Reason(
        "reference-not-valid",
        "comparison",
        "the reference's trial of the same repeat is not valid itself",
    ),
    Reason(
        "pairs-apart",
        "comparison",
        "the reference's trial of the same repeat was run by another invocation of `run` (a "
        "resumed sweep, `--only`), or more than 6 hours away",
        passes=True,
    ),
    Reason(
        "native-not-valid",
        "comparison",
        "as `reference-not-valid`, of `autoregressive` where that is not the reference",
    ),
    Reason("native-pairs-apart", "comparison", "as `pairs-apart`, of the same", passes=True),
    Reason(
        LEFT_OUT,
        "comparison",
        "a remark on a cell: so many of its repeats are used, and why the others are left out: "
        "`client-late`, `clocks-throttled` and `machine-noisy` may pass, as may a pair's distance "
        "in time. What pools repeats does without those that have only such reasons, as long as "
        "two are left; with fewer all are used, and what they say is void",
    ),
    Reason(
        CELL_NOT_VALID,
        "comparison",
        "a remark: of this trial everything stands but what pools it with a repeat that does not: "
        "`speedup_low`, `speedup_high` (and those of `speedup_native`)",
    ),
)
TIMES_ONLY = frozenset(reason.slug for reason in REASONS if reason.concerns == "times")
"""Reasons that leave answers what they are; any other makes them doubtful too."""
REMARKS = frozenset(
    {
        *(TOO_FEW_SAMPLES, LENGTH_MISMATCH, CELL_NOT_VALID, LEFT_OUT, NOT_CHECKED, IMPORTED),
        *(LENGTHS_CUT, CALIBRATED_OTHERWISE, PROMPTS_SEEN, PROMPTS_REPEATED, REPLAYED_OTHERWISE),
        *(NOT_WARMED_UP, UNSCORED, KV_STARVED, "other-draws", "native-other-draws"),
    }
)
"""What a valid trial may carry: it concerns single numbers."""
PASSING = frozenset(reason.slug for reason in REASONS if reason.passes)
"""Reasons that the same trial may be free of when it is measured again."""


_CONCERNS = ("all", "times", "comparison")
_WEIGHTS = {
    reason.slug: (reason.slug in REMARKS, _CONCERNS.index(reason.concerns), place)
    for place, reason in enumerate(REASONS)
}


def weight(name: str) -> tuple[bool, int, int]:
    """Sorts slugs, the weightiest first: what makes all of a trial doubtful, its times, what
    compares it; then remarks in the same order. One that is not in `REASONS` comes before
    remarks."""
    return _WEIGHTS.get(name, (False, len(_CONCERNS), 0))


def slug(reason: str) -> str:
    """What the text of a reason begins with; of too few samples, whether for a percentile, which is
    a remark, or for the median too, which makes a trial doubtful however often it is measured."""
    name, _, text = reason.partition(":")
    return NO_MEDIAN if name == TOO_FEW_SAMPLES and " about p50" in text else name


def answers_hold(verdict: Validity, aside: str = "") -> bool:
    """Whether a trial's answers may be believed, whatever its times are, the reason `aside` set
    aside."""
    slugs = {slug(reason) for reason in verdict.reasons} - {aside}
    return verdict.valid or slugs <= TIMES_ONLY
