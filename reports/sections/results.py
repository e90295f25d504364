"""The table of results: a row per backend, options, workload and load; a number says what it is
worth."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator
from functools import partial

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.numbers import counted, milliseconds, percent, ratio, significant
from reports.sections import Section
from reports.tables import LOAD, QUALITY, WORKLOAD, Column, Group, bounds, build, judged_scope
from reports.words.definitions import meaning
from reports.words.doubts import filled, one_wave, runs_otherwise
from reports.words.doubts.doubt import UNEQUAL, against, remedy, sentences
from reports.words.doubts.filled import THE_LOADS, unfilled
from reports.words.doubts.overhead import BOUND, shrinking
from reports.words.facts import RESULTS_NOTE
from reports.words.ranking.label_rates import THROUGHPUT, counted_in, rate
from results import registry


def _quality(cell: Cell) -> float | None:
    return next((v for metric in QUALITY if (v := cell.value(metric)) is not None), None)


def _score_name(cell: Cell) -> str:
    """Which score it is, and the flexible score beside the official one."""
    metric = next(metric for metric in QUALITY if cell.value(metric) is not None)
    flexible = cell.value("exact_match_flexible") if metric == "exact_match" else None
    beside = f", {significant(flexible)} flexible" if flexible is not None else ""
    return QUALITY[metric] + beside


QUALITY_COLUMN: Column[Cell] = Column(
    "Quality", _quality, help="task score", css="num begin",
    why="no task score was stored", small=_score_name,
)  # fmt: skip
_VALIDITY = {
    "✓ valid": "0",
    "✓ not checked": "0",
    "✕ in part": "1",
    "✕ not valid": "1",
    "✕ failed": "2",
}
"""What a cell is, and how that sorts."""
_SAID_WHY = ("e2e_s_p50", "goodput_req_per_s")
"""Beside which a valid cell says what unequal lengths make of them; once of three percentiles."""


def section(seen: Overview, samples: Samples) -> Section:
    """A row per cell, with every number that systems are compared by."""
    idle = {one.cell for one in unfilled(seen.cells, samples)}
    columns = [
        WORKLOAD,
        dataclasses.replace(LOAD, small=_realised),
        Column(
            "Valid", _validity, css="", sort=lambda cell: _VALIDITY[_validity(cell)], small=_lost,
            marks=lambda cell: "mark good" if cell.valid else "mark bad",
        ),
        *_numbers(seen.why_no_speedup, shrinking(seen.cells), idle, f"{counted_in(seen.cells)}/s"),
        QUALITY_COLUMN,
    ]  # fmt: skip
    table = build(columns, seen.cells, judged_scope)
    loads = [*filled.sentences(seen.cells, samples), *one_wave.sentences(seen.cells)]
    words = [*sentences(seen.cells), *runs_otherwise.sentences(seen.cells), *loads]
    return Section("results", "Results", RESULTS_NOTE, table=table, words=words, is_open=True)


def _numbers(
    why_no_speedup: str, shrinks: Collection[Cell], idle: Collection[Cell], unit: str = ""
) -> Iterator[Column[Cell]]:
    number = partial(_number, why_no_speedup)

    def beside(cell: Cell) -> str:
        if cell.variant.is_reference:
            return "reference"
        remarks = (_matched(cell), BOUND * (cell in shrinks), remedy(cell))
        return " ".join(filter(None, (bounds(cell, "speedup"), "; ".join(filter(None, remarks)))))

    yield dataclasses.replace(
        number("speedup", ratio, "×", has_interval=True),
        value=lambda cell: "1" if cell.variant.is_reference else cell.value("speedup"),
        small=beside,
    )
    yield dataclasses.replace(number("consistency_ratio", percent, "%"), small=_floor)
    yield _or_the_loads(number(THROUGHPUT, significant, unit, has_interval=True), idle)
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        metric = registry.find(name)
        group = Group(metric.label, "ms", meaning(metric))
        for p in ("p50", "p95", "p99"):
            whole = number(name, milliseconds, percentile=p)
            yield dataclasses.replace(whole, title=p, unit="", help="", group=group)
    yield _or_the_loads(number("goodput_req_per_s", significant), idle)


def _or_the_loads(column: Column[Cell], idle: Collection[Cell]) -> Column[Cell]:
    """A rate, and beside it where it is not the system's."""

    def small(cell: Cell) -> str:
        return " ".join(filter(None, (column.small(cell), THE_LOADS * (cell in idle))))

    return dataclasses.replace(column, small=small)


def _number(
    why_no_speedup: str, name: str, form: Callable[[float], str], unit: str = "", *,
    percentile: str = "", has_interval: bool = False,
) -> Column[Cell]:  # fmt: skip
    metric = registry.find(name)

    def key(cell: Cell) -> str:
        return rate(cell) if name == THROUGHPUT else f"{name}_{percentile}".strip("_")

    def small(cell: Cell) -> str:
        few = "" if cell.has_samples_for(percentile) else f"of {cell.samples:,} only"
        lengths = UNEQUAL if key(cell) in _SAID_WHY and against(cell, key(cell)) == UNEQUAL else ""
        own = bounds(cell, key(cell), form) if has_interval and not few else ""
        return " ".join(filter(None, (few, own, lengths)))

    return Column(
        metric.label, lambda cell: cell.value(key(cell)), form, unit or metric.unit,
        meaning(metric), why=lambda cell: _why_undefined(cell, key(cell), why_no_speedup),
        small=small,
        marks=lambda cell: "struck" * (cell.stands_alone and not cell.holds(key(cell))),
    )  # fmt: skip


def _why_undefined(cell: Cell, metric: str, why_no_speedup: str) -> str:
    if not cell.is_measured:
        return "every trial of this cell failed"
    if metric == "consistency_ratio":
        if cell.variant.is_replay:
            return "decisions were replayed: answers are chance"
        if cell.variant.is_reference:
            if cell.trials - cell.failed < 2:
                return "one repeat only, so the reference cannot be compared with itself"
            return "no two repeats have answers that can be compared"
    if metric in {"speedup", "consistency_ratio"}:
        return why_no_speedup or _why_no_pair(cell, metric)
    if metric.startswith("tpot"):
        return "undefined: every request's tokens came in a single commit"
    if metric.startswith("goodput") and not cell.has_slo:
        return "no objective (slo) was set"
    return "undefined: no request finished"


def _why_no_pair(cell: Cell, metric: str) -> str:
    """Of a reference that was run."""
    if metric == "speedup" and cell.samples:
        if cell.value("consistency_requests"):
            return "no two answers have times between tokens"
        if cell.value("tpot_s_mean") is None:
            return "no answer has times between tokens"
    if metric != "speedup" and cell.value("speedup"):
        return "the token ids of the answers are not known"
    return "no request in common with the reference"


def _matched(cell: Cell) -> str:
    """The speed-up at equal lengths, where answers have others and it is another number."""
    matched, whole = cell.value("speedup_matched"), cell.value("speedup")
    if matched is None or whole is None or ratio(matched) == ratio(whole):
        return ""
    return f"at equal lengths {ratio(matched)}"


def _floor(cell: Cell) -> str:
    """What the reference has with itself, and by how much answers are longer or shorter."""
    if cell.variant.is_reference:
        return "with itself" if cell.value("noise_floor") is not None else ""
    floor, length = cell.value("noise_floor"), cell.value("length_ratio")
    words = [] if floor is None else [f"floor {percent(floor)}"]
    if length is not None and significant(length) != "1.00":
        words.append(f"{percent(abs(length - 1))}% {'longer' if length > 1 else 'shorter'}")
    return ", ".join(words)


def _realised(cell: Cell) -> str:
    """The rate that the drawn arrivals came to, beside the one asked for."""
    rate = cell.value("realised_rate_per_s")
    return "" if rate is None else f"realised {significant(rate)}/s"


def _validity(cell: Cell) -> str:
    if cell.valid:
        return "✓ valid" if cell.noise_checked else "✓ not checked"
    if not cell.is_measured:
        return "✕ failed"
    return "✕ in part" if cell.stands_alone else "✕ not valid"


def _lost(cell: Cell) -> str:
    count = counted(cell.trials, "trial")
    if cell.left_out:
        return f"{cell.valid_trials} of {count} used"
    return count if cell.valid else f"{cell.trials - cell.valid_trials} of {count}"
