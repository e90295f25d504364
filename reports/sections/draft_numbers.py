"""Curves over the number of drafts, a line for each threshold: the AdaDecode paper's figure 6."""

from __future__ import annotations

from reports.cells import Overview
from reports.collect import Samples
from reports.figures.sweeps import Drawn
from reports.numbers import ratio
from reports.sections import Section
from reports.sweeps import Sweep, sweep_panels
from reports.words.findings import extremes
from results.compare.pairing import NATIVE

DRAFTS = Sweep("drafts", "the number of drafts", "drafts", "most drafts of a verification")


def section(seen: Overview, _: Samples) -> Section | None:
    """A panel per quantity, load and workload; None without enough numbers of drafts."""
    cells = [cell for cell in seen.cells if cell.is_measured]
    own = [cell for cell in cells if DRAFTS.option in cell.variant.options]
    native = any(cell.value("speedup_native") is not None for cell in own)
    quantities = (
        Drawn("Speed-up", "speedup_native" if native else "speedup", "speed-up (×)"),
        Drawn("Acceptance", "acceptance_rate", "% of drafts"),
    )
    groups = sweep_panels(seen, DRAFTS, own, quantities)
    if not groups:
        return None
    over = NATIVE if native else "the reference"
    note = (
        f"Speed-up over {over} with its 95% interval, and the share of drafts that stand, against "
        "the most drafts of a verification; a line for each of the other settings (the AdaDecode "
        "paper's figure 6)."
    )
    finding = extremes("Speed-up:", own, quantities[0].metric, ratio, "×")
    return Section("draft-numbers", "Number of drafts", note, groups, finding=finding)
