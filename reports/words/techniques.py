"""Early exit in words: how a cell decides to leave, and what its calibration and answers say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from reports.cells import Cell, Overview
from reports.numbers import significant
from reports.tables import QUALITY
from reports.text import clipped, visible
from reports.variants import plain
from reports.words.findings import named
from results.compare.reasons import CALIBRATED_OTHERWISE

FULL = "full"
CONFIDENT = ("softmax", "classifier", "state", "entropy")
"""Techniques that have a threshold."""
PATIENCE = "patience"
"""Leaves where so many ramps in a row say the same."""
FORCED = ("static", "schedule")
"""Those that leave at layers given beforehand."""
_SAID = ("measure", "threshold", "thresholds")
_AGAINST_COUNTS = {"failures", "output-clipped"}
"""Reasons that concern more than times: a noisy machine exits at the same layers, and how much
answers differ, in length too, is what their quality says."""
_ALIKE, _HIDDEN, _RIGHT = 0.5, 0.1, 5
"""A ROUGE-L to full that suggests good answers; by how much it must exceed the share of right
answers that is left before that is said; of how many right answers at least."""


def leaves_early(cell: Cell) -> bool:
    """Whether the cell's backend lets batches leave early (a rate of 0 does not, nor does one that
    counts its layers and says nothing of exits)."""
    has_exits = bool(_measure(cell) or cell.metrics.get("exits_by_layer"))
    return cell.is_measured and has_exits and cell.value("mean_exit_layer") is not None


def _measure(cell: Cell) -> Any:
    return cell.effective.get("measure") or cell.variant.options.get("measure")


def predicts_early(cell: Cell) -> bool:
    """Whether the cell's backend drafts at exits and verifies."""
    drafts = cell.metrics.get("exits_by_layer") and cell.value("early_prediction_rate") is not None
    return cell.is_measured and bool(drafts)


def counts_hold(cell: Cell) -> bool:
    """Whether its exits and answers may be believed, if not its times."""
    return not cell.reasons.keys() & _AGAINST_COUNTS and cell.has_samples_for("p50")


def technique(cell: Cell) -> str:
    """``softmax``, ``static`` and so on; ``full`` where no layer is ever skipped."""
    if not leaves_early(cell):
        return FULL
    return visible(clipped(str(_measure(cell) or "?"), 20))


def label(cell: Cell, *, with_threshold: bool = True) -> str:
    """The technique with the options that tell its variants apart: ``softmax 0.9``."""
    own = cell.variant.options
    asked = [own[key] for key in ("threshold", "thresholds") if key in own and with_threshold]
    rest = {key: own[key] for key in cell.variant.telling if key in own and key not in _SAID}
    words = [plain(value) for value in asked if technique(cell) in CONFIDENT]
    words += [_option(key, value) for key, value in rest.items()]
    return visible(clipped(" ".join([technique(cell), *words]), 60))


def naming(cells: Sequence[Cell]) -> Callable[[Cell], str]:
    """What tells rows of these cells apart: the technique, with its backend in front where several
    backends leave early."""
    if len({cell.variant.backend for cell in cells if leaves_early(cell)}) < 2:
        return label
    return lambda cell: f"{cell.variant.name} {label(cell)}" if leaves_early(cell) else label(cell)


def _option(key: str, value: Any) -> str:
    """The value, with its name where it says nothing without."""
    needs_name = isinstance(value, bool | int | float) or value in ("auto", "none")
    return f"{key}={plain(value)}" if needs_name else plain(value)


GREEDILY = " on the most probable tokens, while answers here are sampled"
ELSEWHERE = " on other prompts or lengths of answers than here"


def statements(cells: Sequence[Cell]) -> list[str]:
    """What calibrations state of the thresholds they chose, each once."""
    found: dict[tuple[str, str, str], bool] = {}
    for cell in cells:
        if said := cell.measured.calibration:
            key = technique(cell).capitalize(), GREEDILY * cell.sampled, said
            found[key] = found.get(key, False) or CALIBRATED_OTHERWISE not in cell.reasons
    return sorted(
        f"{name}, calibrated{how}{'' if fits else ELSEWHERE}: {visible(clipped(said, 800))}"
        for (name, how, said), fits in found.items()
    )


def losses(overview: Overview, cells: Sequence[Cell]) -> list[str]:
    """Where answers keep most of the words of full's and lose their results, which ROUGE-L to full
    does not show: of each workload whose answers are right or wrong, the cell that hides most."""
    full = {c.place: c for c in with_full(overview, cells) if c.variant.is_reference}
    found = []
    for workload in overview.workloads:
        hidden: list[tuple[float, str]] = []
        for cell in cells:
            reference = full.get(cell.place)
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
            f"{significant(own)} with {label(cell)} ({named(cell, cell.load)}), though ROUGE-L to "
            f"full is {significant(alike)}: words are kept, results are not.",
        )


def threshold(cell: Cell) -> str | None:
    """As it took effect; the layer of what leaves at one always, how many ramps have to agree, None
    where none was told."""
    if technique(cell) == PATIENCE:
        ramps = cell.effective.get(PATIENCE)
        return None if ramps is None else visible(clipped(f"{plain(ramps)} in a row", 60))
    if technique(cell) in FORCED:
        layers = plain(cell.effective.get("layers", "?")).strip("[]")
        return visible(clipped(f"layer {layers}", 60))
    told = cell.effective.get("thresholds", cell.effective.get("threshold"))
    values = list(told) if isinstance(told, list | tuple) else [told]
    distinct = list(dict.fromkeys(_short(value) for value in values if value is not None))
    if technique(cell) not in CONFIDENT or not distinct:
        return None
    words = distinct if len(distinct) == 1 else [_short(value) for value in values]
    return visible(clipped(" ".join(words), 60))


def why_no_threshold(cell: Cell) -> str:
    """Why `threshold` is None."""
    unsaid = technique(cell) in (*CONFIDENT, PATIENCE)
    return "the backend did not say" if unsaid else "no layer is ever skipped"


def calibrated(cell: Cell) -> str:
    """Whether thresholds were calibrated, and for what where that is not the cell's."""
    if technique(cell) in FORCED or not cell.measured.calibration:
        return ""
    if CALIBRATED_OTHERWISE in cell.reasons:
        return "calibrated for others"
    if cell.sampled:
        return "calibrated greedily"
    batch = cell.measured.calibration_batch or 1
    if (cell.load_kind, cell.load_value) == ("closed", batch):
        return "calibrated"
    return "calibrated one at a time" if batch == 1 else f"calibrated {batch} at a time"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else plain(value)


def with_full(overview: Overview, cells: Sequence[Cell]) -> list[Cell]:
    """These cells and the reference's of the same workloads and loads, in the page's order."""
    scopes = {cell.place for cell in cells}
    return [
        cell
        for cell in overview.cells
        if cell in cells
        or (cell.is_measured and cell.variant.is_reference and cell.place in scopes)
    ]
