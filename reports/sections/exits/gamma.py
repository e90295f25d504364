"""Curves over the confidence threshold gamma: the AdaDecode paper's figure 5."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from harness.core.nouns import canonical_json
from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.figures import exits as figures
from reports.panels import Panel, PanelGroup, Place, by_load, panels
from reports.sections import Section
from reports.text import clipped, visible
from reports.variants import plain
from reports.words.techniques import predicts_early
from results.compare.pairing import NATIVE

FEWEST_GAMMAS = 3
"""A curve over gamma needs so many."""


def section(seen: Overview, _: Samples) -> Section | None:
    """A panel per quantity, load and workload; None without enough gammas."""
    cells = [cell for cell in seen.cells if predicts_early(cell)]
    native = any(cell.value("speedup_native") is not None for cell in cells)
    several = len({cell.load for cell in cells}) > 1
    groups: list[PanelGroup] = []
    for title, metric, label in (
        ("Speed-up", "speedup_native" if native else "speedup", "speed-up (×)"),
        ("Early prediction rate", "early_prediction_rate", "% of steps"),
        ("Rejection rate", "rejection_rate", "% of early predictions"),
    ):
        for load, own in by_load(panels(seen, partial(_curves, title, metric, label), cells)):
            groups.append(PanelGroup(own, f"{title}, {load}" if several else title))
    if not groups:
        return None
    over = NATIVE if native else "the reference"
    note = (
        f"Speed-up over {over} with its 95% interval, the share of steps that end in an early "
        "prediction, and the share of early predictions that verification rejects, against the "
        "confidence that an early prediction needs (the AdaDecode paper's figure 5)."
    )
    return Section("gamma", "Confidence threshold", note, groups, short="Threshold")


def _curves(title: str, metric: str, label: str, place: Place) -> Iterator[Panel]:
    if curves := gamma_curves(place.cells):
        paint = partial(figures.against_gamma, curves=curves, metric=metric, label=label)
        yield Panel(paint, f"{title} against gamma{place.words}")


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
