"""Goodput against the objective, tightened and loosened."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from reports.cells import Overview
from reports.collect import SCALES, Samples
from reports.figures import throughput, tradeoff
from reports.panels import Panel, Place, folded, group, panels
from reports.sections import Section


def section(seen: Overview, samples: Samples) -> Section:
    """A fold per load, in it a panel per workload."""
    groups = folded(panels(seen, partial(_curves, samples), seen.cells))
    note = "The run has no objective (slo), so goodput is undefined."
    if groups:
        slo = next(cell.slo for cell in seen.cells if cell.has_slo)
        bounds = {"TTFT": slo.ttft_ms, "TPOT": slo.tpot_ms, "end to end": slo.e2e_ms}
        words = ", ".join(f"{name} ≤ {b:g} ms" for name, b in bounds.items() if b is not None)
        note = (
            f"Requests per second that meet the objective ({words}) when all its bounds are "
            "multiplied by the scale; dashed: the objective as given. Median over the repeats."
        )
        rates = [cell for cell in seen.cells if cell.load_kind == "poisson"]
        groups = [*groups, *group(panels(seen, _rates, rates, per="workload"), "Against the rate")]
    return Section("goodput", "Goodput against the objective", note, groups, short="Goodput")


def _rates(place: Place) -> Iterator[Panel]:
    """At the objective as given; none of a single rate."""
    if len({cell.load_value for cell in place.cells}) < 2:
        return
    paint = partial(
        throughput.against_load,
        cells=place.cells,
        x_label="requests per second asked for",
        quantity=throughput.GOODPUT,
    )
    yield Panel(paint, f"Goodput against the rate{place.words}")


def _curves(samples: Samples, place: Place) -> Iterator[Panel]:
    curves = {
        cell: (SCALES, np.median(samples.goodput[cell], axis=0).tolist())
        for cell in place.cells
        if cell in samples.goodput
    }
    if curves:
        title = f"Goodput against the scale of the objective{place.words}"
        yield Panel(partial(tradeoff.goodput_against_scale, curves=curves), title)
