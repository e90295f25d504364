"""The numbers of a cell as a terminal's table shows them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.core.nouns import SAMPLES_NEEDED, SAYS_NOTHING, Slo
from results.compare.reasons import REMARKS, slug, weight

if TYPE_CHECKING:
    from results.registry import Metric

THROUGHPUT, LABELS = "output_tok_per_s", "labels/s"
NONE, REFERENCE = "–", "reference"
EMPTY = {NONE, REFERENCE}
"""All that stands in a column without a number."""
VOID = "!"


def metric_text(cell: Mapping[str, Any], metric: Metric, compact: bool) -> str:
    """A metric's, in milliseconds where it is a time; `compact`: without a p99. Marked with `VOID`
    where it is not to be believed though others of its row are."""
    found = _value(cell, metric, compact)
    return found + VOID if found != NONE and is_void(cell, metric) else found


def is_void(cell: Mapping[str, Any], metric: Metric) -> bool:
    """Whether a number is not to be believed though others of its row are."""
    void = cell["void_metrics"]
    return THROUGHPUT not in void and any(key in void for key in metric.keys)


def doubts(cell: Mapping[str, Any]) -> list[str]:
    """The reasons for which trials of a cell are not valid, the weightiest first."""
    told = [reason for reason in cell["invalid_reasons"] if slug(reason) not in REMARKS]
    return sorted(told, key=lambda reason: weight(slug(reason)))


def has_labels(cell: Mapping[str, Any]) -> bool:
    """Whether the cell's answers are labels, which have a rate and no tokens."""
    return cell[THROUGHPUT] is None is not cell["request_per_s"]


def label_kinds(cells: Sequence[Mapping[str, Any]]) -> set[bool]:
    """Whether answers are labels, as far as cells have any: one that failed says nothing."""
    return {has_labels(cell) for cell in cells if has_labels(cell) or cell[THROUGHPUT] is not None}


def heading_of(metric: Metric, cells: Sequence[Mapping[str, Any]]) -> str:
    """Of a metric's column; that of throughput says where answers are labels, all of them."""
    if metric.name == THROUGHPUT and label_kinds(cells) == {True}:
        return LABELS
    return f"{metric.short} ms" if metric.unit == "s" else metric.short


def has_objective(cell: Mapping[str, Any]) -> bool:
    """Whether the cell's requests had any bound to meet. Without one its goodput is its throughput
    (docs/metrics.md), and says nothing of how many answers were good."""
    return any(cell.get(f"slo_{bound.name}") is not None for bound in dataclasses.fields(Slo))


def _value(cell: Mapping[str, Any], metric: Metric, compact: bool) -> str:
    if metric.name == "speedup":
        return speedup_text(cell)
    if metric.each:
        return _percentiles(cell, metric, compact)
    if metric.name.startswith("goodput") and not has_objective(cell):
        return NONE
    is_rate = metric.name == THROUGHPUT and has_labels(cell)
    value = cell["request_per_s" if is_rate else metric.name]
    return number(value * 1e3 if metric.unit == "s" and value is not None else value)


def _percentiles(cell: Mapping[str, Any], metric: Metric, compact: bool) -> str:
    """Median and p99, seconds in milliseconds; the median alone where it is to be short."""
    middle, tail = cell[f"{metric.name}_p50"], cell[f"{metric.name}_p99"]
    if middle is None:
        return NONE
    doubt = "" if cell["n_completed"] >= SAMPLES_NEEDED["p99"] else "?"
    factor = 1e3 if metric.unit == "s" else 1
    if compact:
        return number(middle * factor)
    return f"{number(middle * factor)} / {number(tail * factor)}{doubt}"


def speedup_text(cell: Mapping[str, Any]) -> str:
    """Over the reference, with its interval."""
    if cell["is_reference"]:
        return REFERENCE
    if cell["speedup"] is None:
        return NONE
    if cell["speedup_low"] is None:
        return f"{cell['speedup']:.2f}"
    low, high = cell["speedup_low"], cell["speedup_high"]
    if high > low * SAYS_NOTHING:
        return f"{cell['speedup']:.2f} [0, ∞]"
    return f"{cell['speedup']:.2f} [{low:.2f}, {high:.2f}]"


def number(value: float | None) -> str:
    """Three digits, or whole thousands; `NONE` of nothing."""
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def options_apart(own: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    """The options in which variants of one backend differ: ``gamma=0.9 max_drafts=default``."""
    keys = sorted(set().union(*others))
    varying = [key for key in keys if any(one.get(key) != own.get(key) for one in others)]
    return " ".join(f"{key}={_named(own.get(key, 'default'))}" for key in varying)


def _named(value: Any) -> Any:
    """Of rates, whose numbers are too many for a row, their name where they have one."""
    return value.get("name", value) if isinstance(value, Mapping) else value
