"""What each number in the report means, in a sentence or two; docs/metrics.md says the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from results import registry
from results.registry import Metric

GENERAL: tuple[tuple[str, str], ...] = (
    (
        "interval",
        "In brackets beside a speed-up: 95%, over all repeats of a cell. Over several rows: the "
        "geometric means of their values and of both ends of their intervals.",
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


def definitions(cells: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Terms with their meanings: the metrics that stand in the table or that one of `cells` (of
    `results.rows.cells`) has, then the general ones."""
    used = [metric for metric in registry.METRICS if _is_used(metric, cells)]
    return [*((_term(metric), meaning(metric)) for metric in used), *GENERAL]


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
