"""The figures of cost at a fixed rate, 12 and 13, and table 1."""

from __future__ import annotations

import itertools
import math

from backends.tetris.profile import cluster_from
from benchmarks.tetris import paper, planner
from benchmarks.tetris.paper_figures.figure import PaperFigure, beside, over, span
from benchmarks.tetris.paper_figures.runs import PLAIN, SHRINKING, Devices, cheapest, one_device

RATE = 6_000.0
MANY_V100: Devices = (("V100", 80),)
MANY: Devices = (("V100", 20), ("P100", 44), ("K80", 40))
"""Of which a plan may take what it likes; the planner's search holds 50,000 choices."""
MODELS = {"BERT-Base": 12, "BERT-Large": 24, "ResNet50": 50}


def devices_needed(batches: tuple[int, ...]) -> PaperFigure:
    """12."""
    each = [one_device("bert", "V100", batch) for batch in batches]
    found = [cheapest("bert", MANY_V100, batch, RATE) for batch in batches]
    piped = [float(round(cost / paper.PRICE["V100"])) for cost, _ in found]
    dee, bert = ([float(math.ceil(RATE / one[n])) for one in each] for n in (SHRINKING, PLAIN))
    ours = f"{span(over(piped, dee))} of DeeBERT's, {span(over(piped, bert))} of BERT's"
    ours += f"; simulated, they bring {span([one / RATE for _, one in found])} of the rate"
    series = {"TETRIS": piped, "DeeBERT": dee, "BERT": bert}
    return beside("Figure 12", ours, ("batch", batches), "devices", series)


def least_cost(batches: tuple[int, ...]) -> PaperFigure:
    """13."""
    kinds = [kind for kind, _ in MANY]
    found = [cheapest("bert", MANY, batch, RATE) for batch in batches]
    piped = [cost for cost, _ in found]
    each = [{kind: one_device("bert", kind, batch) for kind in kinds} for batch in batches]
    dee, bert = (
        [cheapest_mix({kind: one[kind][system] for kind in kinds}) for one in each]
        for system in (SHRINKING, PLAIN)
    )
    lower = [1 - ratio for ratio in (*over(piped, dee), *over(piped, bert))]
    than_dee, than_bert = lower[: len(batches)], lower[len(batches) :]
    ours = f"{min(than_dee):.0%} to {max(than_dee):.0%} lower than DeeBERT's"
    ours += f", {min(than_bert):.0%} to {max(than_bert):.0%} than BERT's"
    ours += f"; simulated, they bring {span([one / RATE for _, one in found])} of the rate"
    series = {"TETRIS": piped, "DeeBERT": dee, "BERT": bert}
    return beside("Figure 13", ours, ("batch", batches), "dollars an hour", series, 1)


def cheapest_mix(per_s: dict[str, float]) -> float:
    """Of whole devices that reach the rate together."""
    kinds = sorted(
        (kind for kind in per_s if per_s[kind]), key=lambda kind: paper.PRICE[kind] / per_s[kind]
    )
    most = [range(math.ceil(RATE / per_s[kind]) + 1) for kind in kinds[1:]]
    least = math.inf
    for counts in itertools.product(*most):
        rest = RATE - sum(n * per_s[kind] for n, kind in zip(counts, kinds[1:], strict=True))
        first = max(math.ceil(rest / per_s[kinds[0]]), 0)
        every = zip((first, *counts), kinds, strict=True)
        least = min(least, sum(n * paper.PRICE[kind] for n, kind in every))
    return least


def overhead(repeats: int) -> PaperFigure:
    """Table 1: the slowest of what `benchmarks/tetris/planner.py` asks."""
    series: dict[str, list[float]] = {}
    told = []
    for name, devices in planner.CLUSTERS.items():
        series[f"the paper, {name}"] = [1e3 * planner.PAPER_S[name][one] for one in MODELS]
        slowest = [_slowest_ms(layers, devices, repeats) for layers in MODELS.values()]
        series[f"ours, {name}"] = slowest
        told.append(f"{name} {', '.join(f'{one:.0f}' for one in slowest)} ms")
    at = ("model", [f"{one}, {layers}" for one, layers in MODELS.items()])
    return beside("Table 1", "; ".join(told), at, "ms", series, provenance="measured here")


def _slowest_ms(layers: int, devices: dict[str, int], repeats: int) -> float:
    model = planner.profile(layers)
    price = {kind: planner.PRICE[kind] for kind in devices}
    cluster = cluster_from({"devices": devices, "price": price}, "cluster", model)
    wishes = planner.wishes(layers).values()
    return 1e3 * max(planner.timed(model, cluster, wanted, repeats)[1] for wanted in wishes)
