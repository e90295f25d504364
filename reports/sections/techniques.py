"""Early exit by technique: how a cell decides to leave, and the table of the early-exit paper."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from reports.cells import Cell, Overview
from reports.numbers import interval, milliseconds, percent, ratio, significant
from reports.tables import QUALITY, BodyCell, BodyRow, HeaderCell, Table, quality
from reports.text import clipped, visible
from reports.variants import plain

FULL = "full"
CONFIDENT = ("softmax", "classifier", "state")
"""Techniques that have a threshold."""
FORCED = ("static", "schedule")
"""Those that leave at layers given beforehand."""
_SAID = ("measure", "threshold", "thresholds")
_AGAINST_COUNTS = {"failures", "output-clipped"}
"""Reasons that concern more than times: a noisy machine exits at the same layers, and how much
answers differ, in length too, is what their quality says."""
_ALIKE, _HIDDEN, _RIGHT = 0.5, 0.1, 5
"""A ROUGE-L to full that suggests good answers; by how much it must exceed the share of right
answers that is left before that is said; of how many right answers at least."""
_HEADS = (
    ("Technique", "", ""),
    ("Threshold", "", "as it took effect; one where all checked layers have the same"),
    ("Workload", "", ""),
    ("Load", "", ""),
    ("ROUGE-L", "to full", "of the answers against the reference's, which runs all layers"),
    ("Quality", "to label", "task score"),
    ("Early-exit rate", "%", "layer passes skipped; below: if each sequence left alone"),
    ("Throughput", "tokens/s", "output tokens per second, and of the reference's"),
    ("Inner-token", "ms", "decoding latency over tokens, and the reference's over this"),
    ("Speed-up", "×", "decode speed against the reference, 95% interval"),
)


def leaves_early(cell: Cell) -> bool:
    """Whether the cell's backend lets batches leave early (a rate of 0 does not)."""
    return cell.is_measured and cell.value("mean_exit_layer") is not None


def counts_hold(cell: Cell) -> bool:
    """Whether its exits and answers may be believed, if not its times."""
    return not cell.reasons.keys() & _AGAINST_COUNTS and cell.has_samples_for("p50")


def technique(cell: Cell) -> str:
    """``softmax``, ``static`` and so on; ``full`` where no layer is ever skipped."""
    if not leaves_early(cell):
        return FULL
    said = cell.effective.get("measure") or cell.variant.options.get("measure") or "?"
    return visible(clipped(str(said), 20))


def label(cell: Cell, *, with_threshold: bool = True) -> str:
    """The technique with the options that tell its variants apart: ``softmax 0.9``."""
    own = cell.variant.options
    asked = [own[key] for key in ("threshold", "thresholds") if key in own and with_threshold]
    rest = {key: own[key] for key in cell.variant.telling if key in own and key not in _SAID}
    words = [plain(value) for value in asked if technique(cell) in CONFIDENT]
    words += [_option(key, value) for key, value in rest.items()]
    return visible(clipped(" ".join([technique(cell), *words]), 60))


def _option(key: str, value: Any) -> str:
    """The value, with its name where it says nothing without."""
    needs_name = isinstance(value, bool | int | float) or value in ("auto", "none")
    return f"{key}={plain(value)}" if needs_name else plain(value)


def statements(cells: Sequence[Cell]) -> list[str]:
    """What calibrations state of the thresholds they chose, each once."""
    found = {
        f"{technique(cell).capitalize()}, calibrated: {visible(clipped(str(said), 400))}"
        for cell in cells
        if (said := cell.effective.get("calibrated"))
    }
    return sorted(found)


def losses(overview: Overview, cells: Sequence[Cell]) -> list[str]:
    """Where answers keep most of the words of full's and lose their results, which ROUGE-L to full
    does not show: of each workload whose answers are right or wrong, the cell that hides most."""
    full = {(c.workload, c.load): c for c in with_full(overview, cells) if c.variant.is_reference}
    found = []
    for workload in overview.workloads:
        hidden: list[tuple[float, str]] = []
        for cell in cells:
            reference = full.get((cell.workload, cell.load))
            if cell.workload != workload or reference is None:
                continue
            if counts_hold(cell) and counts_hold(reference):
                hidden += _hidden(cell, reference)
        if hidden:
            found.append(max(hidden)[1])
    return found


def _hidden(cell: Cell, reference: Cell) -> Iterator[tuple[float, str]]:
    """By how much more of the words than of the right answers is kept, and that in a sentence."""
    alike = cell.value("rouge_l_to_full")
    for metric in ("exact_match", "pass_at_1"):
        own, whole = cell.value(metric), reference.value(metric)
        if own is None or whole is None or alike is None or alike < _ALIKE:
            continue
        if whole * reference.samples < _RIGHT or alike - own / whole < _HIDDEN:
            continue
        yield (
            alike - own / whole,
            f"{cell.workload}: {QUALITY[metric]} is {significant(whole)} with full and "
            f"{significant(own)} with {label(cell)} ({cell.load}), though ROUGE-L to full is "
            f"{significant(alike)}: words are kept, results are not.",
        )


def threshold(cell: Cell) -> BodyCell:
    """As it took effect, and whether it was calibrated; the layer of what leaves at one always."""
    if technique(cell) in FORCED:
        layers = plain(cell.effective.get("layers", "?")).strip("[]")
        text = visible(clipped(f"layer {layers}", 60))
        return BodyCell(text, text)
    if technique(cell) not in CONFIDENT:
        return BodyCell(undefined="no layer is ever skipped")
    told = cell.effective.get("thresholds", cell.effective.get("threshold"))
    values = list(told) if isinstance(told, list | tuple) else [told]
    distinct = list(dict.fromkeys(_short(value) for value in values if value is not None))
    if not distinct:
        return BodyCell(undefined="the backend did not say")
    words = distinct if len(distinct) == 1 else [_short(value) for value in values]
    text = visible(clipped(" ".join(words), 60))
    return BodyCell(text, text, small=_calibrated(cell))


def _calibrated(cell: Cell) -> str:
    """Whether thresholds were calibrated, and for which batch where the load is not of that."""
    if not cell.effective.get("calibrated"):
        return ""
    batch = cell.effective.get("calibrated_batch", 1)
    if (cell.load_kind, cell.load_value) == ("closed", batch):
        return "calibrated"
    return "calibrated one at a time" if batch == 1 else f"calibrated {batch} at a time"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else plain(value)


def with_full(overview: Overview, cells: Sequence[Cell]) -> list[Cell]:
    """These cells and the reference's of the same workloads and loads, in the page's order."""
    scopes = {(cell.workload, cell.load) for cell in cells}
    return [
        cell
        for cell in overview.cells
        if cell in cells
        or (cell.is_measured and cell.variant.is_reference and (cell.workload, cell.load) in scopes)
    ]


def table(cells: Sequence[Cell]) -> Table:
    """A row per cell: the early-exit paper's table 1, and what the technique gained."""
    heads = [HeaderCell("Backend", rows=1, column=0)]
    for column, (title, unit, words) in enumerate(_HEADS, start=1):
        css = "num" if column > 4 or title == "Threshold" else ""
        heads.append(HeaderCell(title, unit, css, words, column=column))
    return Table(tuple(heads), (), tuple(_rows(cells)))


def _rows(cells: Sequence[Cell]) -> Iterator[BodyRow]:
    before: tuple[str, str] | None = None
    for cell in cells:
        scope = (cell.workload, cell.load)
        css = "first-of-group" if scope != before else ""
        before = scope
        validity = "valid" if cell.valid else "not valid"
        yield BodyRow(cell.variant, cell.workload, cell.load, validity, css, _items(cell))


def _items(cell: Cell) -> tuple[BodyCell, ...]:
    name = label(cell, with_threshold=False)
    is_reference = cell.variant.is_reference
    alone = cell.value("early_exit_rate_own")
    return (
        BodyCell(name, name, css=""),
        threshold(cell),
        BodyCell(cell.workload, cell.workload, css=""),
        BodyCell(cell.load, str(cell.order), css=""),
        _doubted(
            cell,
            BodyCell(undefined="the reference itself")
            if is_reference
            else _number(cell, "rouge_l_to_full", significant),
            "rouge_l_to_full",
        ),
        _doubted(cell, quality(cell)),
        _doubted(
            cell,
            _number(
                cell,
                "early_exit_rate",
                percent,
                "all layers run" if is_reference else "",
                small="" if alone is None else f"alone {percent(alone)}",
            ),
        ),
        _speed(cell, "output_tok_per_s", significant, "throughput_ratio"),
        _speed(cell, "inner_token_latency_s", milliseconds, "inner_token_latency_ratio"),
        _speed(cell, "speedup", ratio, None),
    )


def _number(
    cell: Cell, metric: str, form: Callable[[float], str], why: str = "", small: str = ""
) -> BodyCell:
    value = cell.value(metric)
    if value is None:
        return BodyCell(undefined=why or "nothing to compare with, or nothing was counted")
    return BodyCell(form(value), repr(value), small=small)


def _speed(cell: Cell, metric: str, form: Callable[[float], str], over: str | None) -> BodyCell:
    """A number that is struck through where it is not valid, for whatever reason."""
    small = ""
    low, high = cell.low(metric), cell.high(metric)
    if over is None and low is not None and high is not None:
        small = interval(low, high)
    if over is not None and not cell.variant.is_reference:
        times = cell.value(over)
        # beside a number that stands, a comparison that does not is left out
        told = times is not None and cell.holds(over) == cell.holds(metric)
        small = f"{ratio(times)}×" if times is not None and told else ""
    return _struck(_number(cell, metric, form, small=small), not cell.holds(metric))


def _doubted(cell: Cell, item: BodyCell, metric: str = "") -> BodyCell:
    void = cell.stands_alone and bool(metric) and not cell.holds(metric)
    return _struck(item, void or not counts_hold(cell))


def _struck(item: BodyCell, is_struck: bool) -> BodyCell:
    css = "num" + " struck" * is_struck
    return dataclasses.replace(item, css=css)
