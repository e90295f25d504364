"""Every metric of a trial, each said once: `show`, the frames, docs/metrics.md and the report take
name, unit, formula and text from here. `python -m results.registry` writes the tables of the doc.
"""

from __future__ import annotations

from results.registry import answers, decoding, parts, speed, trial
from results.registry.metric import Metric, TrialInputs

__all__ = [
    "METRICS",
    "METRIC_NAMES",
    "Metric",
    "TrialInputs",
    "find",
    "of_the_cell",
    "scores",
    "unequal_work",
    "void_with",
]

METRICS: tuple[Metric, ...] = (
    *trial.COUNTS,
    trial.REALISED_RATE,
    *trial.RESOURCES,
    *trial.RATES,
    *trial.TIMES,
    *answers.SCORES,
    *decoding.WORK,
    *decoding.BATCHES,
    *decoding.EXITS,
    *decoding.PREDICTIONS,
    *decoding.STEPS,
    *answers.AGREEMENT,
    *speed.SPEED,
    *parts.PARTS,
    *speed.NATIVE,
    trial.MEAN_DECODE_RATE,
)
"""In the order of `show --json`."""

METRIC_NAMES = frozenset(key for metric in METRICS for key in metric.keys)
"""Keys of a row of results: several of a metric that has percentiles."""


def find(name: str) -> Metric:
    """The metric of this name. Raises `KeyError`."""
    return next(metric for metric in METRICS if metric.name == name)


def scores() -> tuple[Metric, ...]:
    """Task scores, by the names that workloads store them under."""
    return tuple(metric for metric in METRICS if metric.needs == "scores")


def void_with(doubt: str) -> tuple[str, ...]:
    """Names that a doubt about a comparison (see `Metric.void_with`) makes void."""
    return tuple(key for metric in METRICS if metric.void_with == doubt for key in metric.keys)


def unequal_work() -> tuple[str, ...]:
    """Names of what compares unequal work where answers have other lengths."""
    return tuple(key for metric in METRICS if metric.unequal_work for key in metric.keys)


def of_the_cell() -> tuple[str, ...]:
    """Names of what every trial's row says of a comparison of all repeats of its cell."""
    return tuple(m.name for m in METRICS if m.formula is None and m.void_with)
