"""The sections of a run whose backends leave the model early: exits, cost model, ablations, gamma.

Which backends these are is told by what they count (`exits_by_layer`), not by their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from harness.core.nouns import canonical_json
from reports.cells import Cell, Overview
from reports.figures import exits as figures
from reports.figures.panel import Panel, draw, short_label
from reports.sections import ablations, prediction, techniques
from reports.sections.figures import (
    FigureSection,
    PanelGroup,
    by_load,
    measured,
    panel_width,
    rows_panel,
)
from reports.text import clipped, visible
from reports.variants import plain
from results.compare.pairing import NATIVE

FEWEST_GAMMAS = 3
"""A curve over gamma needs so many."""
OVER_GAMMA = {
    "speedup": "speed-up (×)",
    "early_prediction_rate": "% of steps",
    "rejection_rate": "% of early predictions",
}
_TITLES = ("Speed-up", "Early prediction rate", "Rejection rate")


def exit_sections(overview: Overview) -> list[FigureSection]:
    """Those of the four sections that the run has numbers for; all but the first are of early
    predictions. Needs `figures.panel.drawing`."""
    cells = [c for c in measured(overview) if c.metrics.get("exits_by_layer")]
    if not cells:
        return []
    predicting = [cell for cell in cells if cell.value("early_prediction_rate") is not None]
    found = [
        _histogram(overview, cells),
        _prediction(overview, predicting),
        _ablations(predicting),
        _gamma(overview, predicting),
    ]
    return [section for section in found if section is not None]


def _histogram(overview: Overview, cells: Sequence[Cell]) -> FigureSection | None:
    panels = []
    for place, (load, own) in enumerate(_loads(overview, cells)):
        rows = [cell for cell in own if figures.shares(cell)]
        if not rows:
            continue
        title = f"Share of tokens by the layer they were committed at, {load}"
        paint = partial(figures.histogram, cells=rows, name=_name)
        svg = draw(paint, prefix=f"ex{place}-", title=title, **rows_panel(rows))
        panels.append(Panel(svg, load, load=load))
    note = (
        "Tokens by where they were predicted: at the exit behind a layer (its number; the deeper, "
        "the fainter) or at full depth (grey, all)."
    )
    if any(cell.value("early_prediction_rate") is not None for cell in cells):
        note += " Outlined beyond 100%: drafts that verification threw away."
    if any(techniques.leaves_early(cell) for cell in cells):
        note += (
            " Where a batch leaves together the thin bar below is where each sequence would have "
            "left alone."
        )
    return FigureSection("exits", "Exits by layer", "Exits", note, [PanelGroup(panels)])


def _name(cell: Cell) -> str:
    return techniques.label(cell) if techniques.leaves_early(cell) else short_label(cell)


def _prediction(overview: Overview, cells: Sequence[Cell]) -> FigureSection | None:
    cells = [cell for cell in cells if prediction.factors(cell)]
    if not cells:
        return None
    panels = []
    for place, (load, own) in enumerate(_loads(overview, cells)):
        title = f"Predicted and measured speed-up by workload and backend, {load}"
        paint = partial(figures.predicted_and_measured, cells=own)
        svg = draw(paint, prefix=f"pr{place}-", title=title, **rows_panel(own))
        panels.append(Panel(svg, load, load=load))
    note = (
        f"● measured over {NATIVE} with its 95% interval, ○ predicted from the passes that ran at "
        "the costs measured beforehand, ❘ promised on the calibration text. Measured = predicted "
        "× passes × autoregressive."
    )
    return FigureSection(
        "prediction",
        "Predicted and measured speed-up",
        "Prediction",
        note,
        [PanelGroup(panels)],
        prediction.table(cells),
        prediction.sentences(cells),
    )


def _ablations(cells: Sequence[Cell]) -> FigureSection | None:
    cells = [cell for cell in cells if cell.value("speedup_native") is not None]
    if len({cell.variant.index for cell in cells}) < 2:
        return None
    note = (
        f"Speed-up over {NATIVE} and the share of its answers, by variant and workload (the shape "
        "of the AdaDecode paper's table 3). Bold: the fastest valid one of a column that promises "
        "the same text. †: lossy, it does not promise that. Struck through: not valid."
    )
    return FigureSection("ablations", "Ablations", "Ablations", note, [], ablations.table(cells))


def _gamma(overview: Overview, cells: Sequence[Cell]) -> FigureSection | None:
    groups = []
    native = any(cell.value("speedup_native") is not None for cell in cells)
    loads = list(_loads(overview, cells))
    for title, (metric, label) in zip(_TITLES, OVER_GAMMA.items(), strict=True):
        name = f"{metric}_native" if metric == "speedup" and native else metric
        for place, (load, own) in enumerate(loads):
            panels = []
            for number, workload in enumerate(overview.workloads):
                curves = gamma_curves([cell for cell in own if cell.workload == workload])
                if not curves:
                    continue
                words = f"{title} against gamma: {workload}, {load}"
                paint = partial(figures.against_gamma, curves=curves, metric=name, label=label)
                prefix = f"gm{place}-{number}-{metric}-"
                svg = draw(paint, prefix=prefix, title=words, width_in=panel_width(overview))
                panels.append(Panel(svg, workload, workload, load))
            heading = title if len(loads) == 1 else f"{title}, {load}"
            groups += [PanelGroup(panels, heading, load)][: len(panels)]
    if not groups:
        return None
    over = NATIVE if native else "the reference"
    note = (
        f"Speed-up over {over} with its 95% interval, the share of steps that end in an early "
        "prediction, and the share of early predictions that verification rejects, against the "
        "confidence that an early prediction needs (the AdaDecode paper's figure 5)."
    )
    return FigureSection("gamma", "Confidence threshold", "Threshold", note, groups)


def gamma_curves(cells: Sequence[Cell]) -> list[figures.Curve]:
    """Cells of one workload and load that differ in a numeric option `gamma` only, where there are
    at least three. Labelled with the options that set several such curves apart."""
    found: dict[str, list[tuple[float, Cell]]] = {}
    rests: dict[str, Mapping[str, Any]] = {}
    for cell in cells:
        gamma = cell.variant.options.get("gamma")
        if isinstance(gamma, bool) or not isinstance(gamma, int | float):
            continue
        rest = {k: v for k, v in cell.variant.options.items() if k != "gamma"}
        key = canonical_json([cell.variant.backend, rest])
        found.setdefault(key, []).append((float(gamma), cell))
        rests[key] = rest
    kept = {k: v for k, v in found.items() if len({gamma for gamma, _ in v}) >= FEWEST_GAMMAS}
    labels = {key: _label(rests[key], [rests[k] for k in kept]) for key in kept}
    return [
        figures.Curve(labels[key], sorted(points, key=lambda point: point[0]))
        for key, points in kept.items()
    ]


def _label(own: Mapping[str, Any], all_: Sequence[Mapping[str, Any]]) -> str:
    differing = [k for k in own if any(other.get(k) != own[k] for other in all_)]
    return visible(clipped(" ".join(f"{k}={plain(own[k])}" for k in differing), 40))


def _loads(overview: Overview, cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    for load, _ in by_load(overview):
        own = [cell for cell in cells if cell.load == load]
        if own:
            yield load, own
