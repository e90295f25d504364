"""Each way to leave early, with what it skips, gains and costs: the early-exit paper's table 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.figures import tradeoff
from reports.numbers import milliseconds, percent, ratio, significant
from reports.panels import Panel, Place, folded, panels
from reports.sections import Section
from reports.sections.results import QUALITY_COLUMN
from reports.tables import LOAD, WORKLOAD, Column, bounds, build, scope
from reports.words import techniques
from reports.words.break_even import pays_from
from reports.words.doubts.doubt import against
from reports.words.findings import extremes
from reports.words.ranking.label_rates import THROUGHPUT, are_labels, counted_in, rate

_NOTE = (
    "Each way to leave early, with its threshold as it took effect: how alike its answers are "
    "to the reference's (full), how good, and what was skipped and gained (the shape of the "
    "early-exit paper's table 1). Struck through: not valid. Noise makes only times "
    "doubtful: exits and answers are not struck then. 'Unequal lengths' in the place of a ratio: "
    "answers are longer or shorter than the reference's, so that throughputs do not compare."
)
_CALIBRATED = (
    " Calibrated: a statement above holds for prompts like those it was made on, decoded as it "
    "says. One on a mixture promises nothing for a workload alone, nor for another load."
)
_NO_STEPS = (
    "no plain decoding on this engine beside it, times that are not sound, or (of vLLM on "
    "a GPU) an overhead that nobody tells"
)
_NOTHING = "nothing to compare with, or nothing was counted"


def section(seen: Overview, _: Samples) -> Section | None:
    """A fold per load with a panel per workload, and the table; None where nothing leaves early."""
    cells = [cell for cell in seen.cells if techniques.leaves_early(cell)]
    if not cells:
        return None
    found = panels(seen, _points, [cell for cell in cells if _full(cell).compares(cell)])
    known = any(pays_from(seen, cell) is not None for cell in cells)
    place = [column.title for column in COLUMNS].index("Early-exit rate") + 1
    columns = [*COLUMNS[:place], *[_even(seen)] * known, *COLUMNS[place:]]
    counted = counted_in(cells)
    columns = [replace(c, unit=f"{counted}/s") if c.title == "Throughput" else c for c in columns]
    if counted == "labels":
        columns = [_SAME_LABELS if c.title == "ROUGE-L" else c for c in columns]
    table = build(columns, techniques.with_full(seen, cells), scope)
    words = techniques.statements(cells)
    note = _NOTE + _CALIBRATED * bool(words)
    words += techniques.losses(seen, cells)
    return Section(
        "techniques",
        "Early-exit techniques",
        note,
        folded(found),
        table,
        words,
        "Techniques",
        finding=_finding(cells),
    )


def _finding(cells: Sequence[Cell]) -> str:
    return extremes(
        "Layer passes skipped:", cells, "early_exit_rate", percent, "%",
        holds=lambda cell, _: techniques.counts_hold(cell),
    )  # fmt: skip


def _even(seen: Overview) -> Column[Cell]:
    return Column(
        "Pays from", partial(pays_from, seen), percent, "%",
        help="layer passes that have to be skipped to be as fast as plain decoding on this engine, "
        "by what leaving cost here: hold your own model's against it. Above 100: not at this load",
        why=lambda cell: "all layers run" if cell.variant.is_reference else _NO_STEPS,
    )  # fmt: skip


def _points(place: Place) -> Iterator[Panel]:
    for full in dict.fromkeys(map(_full, place.cells)):
        own = [cell for cell in place.cells if _full(cell) == full]
        title = f"{full.alike} against {full.faster} over {full.name}{place.words}"
        paint = partial(tradeoff.consistency_against_speedup, cells=own, baseline=full)
        yield Panel(paint, title[:1].upper() + title[1:])


def _full(cell: Cell) -> tradeoff.BaselineMetrics:
    return tradeoff.LABELS_TO_FULL if are_labels(cell) else tradeoff.FULL


def _doubted(cell: Cell, metric: str = "") -> str:
    """What only makes times doubtful leaves exits and answers as they are."""
    void = cell.stands_alone and bool(metric) and not cell.holds(metric)
    return "struck" * (void or not techniques.counts_hold(cell))


def _speed(
    title: str, metric: str, form: Callable[[float], str], unit: str, help: str,
    small: Callable[[Cell], str],
) -> Column[Cell]:  # fmt: skip
    """A number that is struck through where it is not valid, for whatever reason."""

    def of(cell: Cell) -> str:
        return rate(cell) if metric == THROUGHPUT else metric

    return Column(
        title, lambda cell: cell.value(of(cell)), form, unit, help, why=_NOTHING, small=small,
        marks=lambda cell: "struck" * (not cell.holds(of(cell))),
    )  # fmt: skip


def _over_full(metric: str, over: str) -> Callable[[Cell], str]:
    """How many times the reference's."""

    def small(cell: Cell) -> str:
        times = None if cell.variant.is_reference else cell.value(over)
        if times is None or cell.holds(over) == cell.holds(metric):
            return "" if times is None else f"{ratio(times)}×"
        # beside a number that stands, a comparison that does not is left out, and why
        return against(cell, over)

    return small


def _alone(cell: Cell) -> str:
    alone = cell.value("early_exit_rate_own")
    return "" if alone is None else f"alone {percent(alone)}"


_SAME_LABELS: Column[Cell] = Column(
    "Same labels",
    lambda cell: None if cell.variant.is_reference else cell.value("consistency_ratio"),
    percent, "%", "share of the answers that are the reference's, which runs all layers",
    why=lambda cell: "the reference itself" if cell.variant.is_reference else _NOTHING,
    marks=partial(_doubted, metric="consistency_ratio"),
)  # fmt: skip
COLUMNS: tuple[Column[Cell], ...] = (
    Column("Technique", lambda cell: techniques.label(cell, with_threshold=False), css=""),
    Column(
        "Threshold", techniques.threshold,
        help="as it took effect; one where all checked layers have the same",
        why=techniques.why_no_threshold, small=techniques.calibrated,
    ),
    WORKLOAD,
    LOAD,
    Column(
        "ROUGE-L",
        lambda cell: None if cell.variant.is_reference else cell.value("rouge_l_to_full"),
        unit="to full", help="of the answers against the reference's, which runs all layers",
        why=lambda cell: "the reference itself" if cell.variant.is_reference else _NOTHING,
        marks=partial(_doubted, metric="rouge_l_to_full"),
    ),
    replace(QUALITY_COLUMN, unit="to label", css="num", marks=_doubted),
    Column(
        "Early-exit rate", lambda cell: cell.value("early_exit_rate"), percent, "%",
        help="layer passes skipped; below: if each sequence left alone",
        why=lambda cell: "all layers run" if cell.variant.is_reference else _NOTHING,
        small=_alone, marks=_doubted,
    ),
    _speed(
        "Throughput", THROUGHPUT, significant, "tokens/s",
        "output tokens (labels) per second, and of the reference's",
        _over_full(THROUGHPUT, "throughput_ratio"),
    ),
    _speed(
        "Inner-token", "inner_token_latency_s", milliseconds, "ms",
        "decoding latency over tokens, and the reference's over this",
        _over_full("inner_token_latency_s", "inner_token_latency_ratio"),
    ),
    _speed(
        "Speed-up", "speedup", ratio, "×", "decode speed against the reference, 95% interval",
        lambda cell: bounds(cell, "speedup"),
    ),
)  # fmt: skip
