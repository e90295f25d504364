"""The sections of a run with batches that leave early: techniques, gains, and the batch's price.

They have the shape of the tables and figures of "An Efficient Inference Framework for Early-exit
Large Language Models". Which backends these are is told by what they count, not by their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from reports.cells import Cell, Overview
from reports.figures import throughput, tradeoff
from reports.figures.panel import Panel, draw
from reports.sections import batch_price, techniques
from reports.sections.figures import FigureSection, PanelGroup, by_load, panel_width, rows_panel

GAINS = {
    "Throughput": throughput.Quantity(
        "throughput_ratio", "throughput over full (×)", "×", is_ratio=True
    ),
    "Inner-token latency": throughput.Quantity(
        "inner_token_latency_ratio", "times shorter than full's (×)", "×", is_ratio=True
    ),
}
"""The early-exit paper's figures 1 and 2."""


def early_exit_sections(overview: Overview) -> list[FigureSection]:
    """Those of the sections that the run has numbers for. Needs `figures.panel.drawing`."""
    cells = [cell for cell in overview.cells if techniques.leaves_early(cell)]
    if not cells:
        return []
    found = [_techniques(overview, cells), _gains(overview, cells), batch_price.section(cells)]
    return [section for section in found if section is not None]


def _techniques(overview: Overview, cells: Sequence[Cell]) -> FigureSection:
    groups: list[PanelGroup] = []
    for place, (load, _) in enumerate(by_load(overview)):
        panels = []
        for number, workload in enumerate(overview.workloads):
            own = [
                cell
                for cell in cells
                if (cell.workload, cell.load) == (workload, load)
                and cell.value(tradeoff.FULL.speedup) is not None
                and cell.value(tradeoff.FULL.consistency) is not None
            ]
            if not own:
                continue
            title = f"ROUGE-L to full against throughput over full: {workload}, {load}"
            paint = partial(tradeoff.consistency_against_speedup, cells=own, baseline=tradeoff.FULL)
            prefix = f"tq{place}-{number}-"
            svg = draw(paint, prefix=prefix, title=title, width_in=panel_width(overview))
            panels.append(Panel(svg, workload, workload, load))
        groups += [PanelGroup(panels, load, load, fold=True, open=not groups)][: len(panels)]
    note = (
        "Each way to leave early, with its threshold as it took effect: how alike its answers are "
        "to the reference's (full), how good, and what was skipped and gained (the shape of the "
        "early-exit paper's table 1). Struck through: not valid; what only makes times "
        "doubtful (noise, answers of other lengths) does not strike exits and answers."
    )
    table = techniques.table(techniques.with_full(overview, cells))
    words = techniques.statements(cells)
    if words:
        note += (
            " Calibrated: a statement above is of prompts like its own, decoded as it says. Of a "
            "mixture it promises nothing for one workload alone, and nothing for another load."
        )
    words += techniques.losses(overview, cells)
    return FigureSection(
        "techniques", "Early-exit techniques", "Techniques", note, groups, table, words
    )


def _gains(overview: Overview, cells: Sequence[Cell]) -> FigureSection | None:
    groups = []
    for name, quantity in GAINS.items():
        panels = []
        for place, (load, found) in enumerate(by_load(overview)):
            own = [c for c in found if c in cells and c.value(quantity.metric) is not None]
            if not own:
                continue
            paint = partial(throughput.bars, cells=own, quantity=quantity, name=techniques.label)
            prefix = f"eg{place}-{quantity.metric.split('_')[0]}-"
            title = f"{name} against full by workload and technique, {load}"
            panels.append(
                Panel(draw(paint, prefix=prefix, title=title, **rows_panel(own)), load, load=load)
            )
        groups += [PanelGroup(panels, name)][: len(panels)]
    if not groups:
        return None
    note = (
        "Output tokens per second over the reference's, and the reference's inner-token latency "
        "over this one, in the same repeat (the early-exit paper's figures 1 and 2). Median over "
        "the repeats; the thin line is their range. Dashed: full. Longer is better."
    )
    return FigureSection("gains", "Early exit against full", "Against full", note, groups)
