"""What each number in the report means, in a sentence or two; docs/metrics.md says the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from reports.sections import Section
from reports.text import visible
from results import registry
from results.registry import Metric

GENERAL: tuple[tuple[str, str], ...] = (
    (
        "cell",
        "One backend with its options on one workload under one load: a row of the results, its "
        "repeats pooled.",
    ),
    (
        "reference",
        "The backend that the experiment names to compare the others with, in speed and answers. "
        "Plain decoding on an engine is one token per pass through all layers.",
    ),
    (
        "load",
        "closed c=8: eight requests are on their way at any time, the next one comes when one is "
        "answered. poisson 16/s: requests come at random times, 16 a second in the long run, "
        "whether or not the others are answered; few requests come to another rate, which stands "
        "beside it.",
    ),
    (
        "the load's",
        "Beside a throughput or goodput under an open load: as many requests were answered as "
        "came, up to a tenth, or no queue grew, or no request was on its way for over a tenth of "
        "the time. The system could have answered more: the rate is that of the arrivals.",
    ),
    (
        "unequal lengths",
        "The answers are longer or shorter than the reference's, in all by so much that requests "
        "per second, whole answers' times, goodput in requests and throughput over the "
        "reference's compare unequal work: these are struck through in a cell that is valid. Time "
        "per token and to the first token stand.",
    ),
    (
        "pass, step",
        "A pass runs the model's layers once for whoever waits. A step is what a request waits for "
        "one pass, with the engine around it.",
    ),
    (
        "overhead-bound",
        "Over half of a step lies above the time that reading (or multiplying with) what the pass "
        "uses must take on this machine: such a ratio changes as models grow.",
    ),
    (
        "draft, verification",
        "Tokens that something cheap proposes, and the one pass of the model that says how many of "
        "them it would have chosen itself.",
    ),
    (
        "exit, ramp, survival",
        "A layer after which a token may leave the model when it is sure enough (a ramp asks), and "
        "the share of the tokens that go on there.",
    ),
    (
        "interval",
        "In brackets beside a speed-up: 95%, over all repeats of a cell. Over several rows: of the "
        "mean of their values, from all their repeats together. What one loading of an engine "
        "decides (2 to 3% where a model lives in a processor's caches) is in it only where the "
        "experiment says `reload: true`: else repeats mostly share one.",
    ),
    (
        "percentiles",
        "p50, p95 and p99 over the requests of a trial. Of several repeats the median is shown. "
        "With fewer than 20 (100) requests nothing lies beyond the p95 (p99): it is marked with "
        "their number, and is little more than the maximum.",
    ),
    (
        "valid",
        "A trial is not valid when one of the reasons under Validity speaks against it: its "
        "numbers are struck through. In part: its own numbers stand, but the reference's trial is "
        "not valid, or was run hours away or by another invocation, so that what compares the two "
        "is struck through.",
    ),
    (
        "provenance",
        "official code: the authors' own implementation. re-implementation: written for "
        "decodebench from the paper. simulation: a model of a system, not a measurement of one. "
        "measured cost, replayed decisions: the work was done and timed, and what was decided "
        "(exits, acceptance, lengths) came from a trace, so that the answers say nothing. "
        "lossy†: the backend does not promise plain decoding's text. unverified: a server, of "
        "which nobody here can say.",
    ),
)


def definitions(
    cells: Sequence[Mapping[str, Any]],
    backends: Mapping[str, str] = MappingProxyType({}),
    sections: Sequence[Section] = (),
) -> list[tuple[str, str]]:
    """Terms with their meanings: `backends` (name -> what it is), the general ones, the metrics
    that stand in the table or that one of `cells` (of `results.rows.cells`) has, and the columns of
    the other tables of `sections`."""
    used = [metric for metric in registry.METRICS if _is_used(metric, cells)]
    metrics = [(_term(metric), meaning(metric)) for metric in used]
    told = [
        (f"{visible(name)} (backend)", visible(text.replace("`", "")))
        for name, text in backends.items()
    ]
    return [*told, *GENERAL, *metrics, *_columns(sections, {text for _, text in metrics})]


def _columns(sections: Sequence[Section], said: Collection[str]) -> Iterator[tuple[str, str]]:
    """The columns that need words, less those that show a metric."""
    for section in sections:
        table = section.table
        for head in (*table.groups, *table.subheads) if table else ():
            if head.help and head.help not in said:
                name = " ".join(filter(None, (head.title, head.unit and f"({head.unit})")))
                yield f"{section.short or section.title}: {name}", head.help


def meaning(metric: Metric) -> str:
    """A metric's text without the marks that set names apart."""
    return metric.text.replace("`", "")


def _term(metric: Metric) -> str:
    label = f" ({metric.label})" if metric.label else ""
    unit = f", {metric.unit}" if metric.unit else ""
    each = f", one per {metric.each}" if metric.each else ""
    return f"{metric.name}{label}{unit}{each}"


def _is_used(metric: Metric, cells: Sequence[Mapping[str, Any]]) -> bool:
    has_column = bool(metric.short)
    return has_column or any(cell[key] is not None for cell in cells for key in metric.keys)
