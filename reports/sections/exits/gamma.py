"""Curves over the confidence threshold gamma: the AdaDecode paper's figure 5."""

from __future__ import annotations

from reports.cells import Overview
from reports.collect import Samples
from reports.figures.sweeps import Drawn
from reports.numbers import ratio
from reports.sections import Section
from reports.sweeps import Sweep, sweep_panels
from reports.words.findings import extremes
from reports.words.techniques import predicts_early
from results.compare.pairing import NATIVE

GAMMA = Sweep("gamma", "gamma", "γ", "threshold γ")


def section(seen: Overview, _: Samples) -> Section | None:
    """A panel per quantity, load and workload; None without enough gammas."""
    cells = [cell for cell in seen.cells if predicts_early(cell)]
    native = any(cell.value("speedup_native") is not None for cell in cells)
    quantities = (
        Drawn("Speed-up", "speedup_native" if native else "speedup", "speed-up (×)"),
        Drawn("Early prediction rate", "early_prediction_rate", "% of steps"),
        Drawn("Rejection rate", "rejection_rate", "% of early predictions"),
    )
    groups = sweep_panels(seen, GAMMA, cells, quantities)
    if not groups:
        return None
    over = NATIVE if native else "the reference"
    note = (
        f"Speed-up over {over} with its 95% interval, the share of steps that end in an early "
        "prediction, and the share of early predictions that verification rejects, against the "
        "confidence that an early prediction needs (the AdaDecode paper's figure 5)."
    )
    metric = quantities[0].metric
    finding = extremes("Speed-up:", cells, metric, ratio, "×")
    return Section(
        "gamma", "Confidence threshold", note, groups, short="Threshold", finding=finding
    )
