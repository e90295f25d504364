"""Behind which layers a check pays: the cheapest way through the layers, at measured costs.

A check behind layer c costs time whenever a step gets that far, and saves the layers above
whenever all of the batch are confident by then. With the share of tokens that are confident behind
layer c or before (which a run that checks every layer tells), the expected time of a step is a sum
over neighbouring checks, so the best set of layers is a shortest path from the first layer to the
last. A sequence that is confident once counts as confident ever after, as in the method itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds of the parts of one step."""

    layer: float
    check: float
    fill: float
    fixed: float = 0.0
    """What every step pays, wherever it ends: scheduler, embedding, head, sampling."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The layers behind which to check, and what that comes to."""

    layers: tuple[int, ...]
    """Ascending, from 1; empty where no check pays."""
    step_us: float
    full_us: float
    """A step of all layers without checks."""

    @property
    def speedup(self) -> float:
        """Expected, over never leaving."""
        return self.full_us / self.step_us


def choose_layers(own_exits: Sequence[int], tokens: int, costs: Costs, batch: int = 1) -> Choice:
    """The set of layers with the least expected time of a step of `batch` independent sequences.

    Args:
        own_exits: for each layer but the last, from 1 on, of how many tokens it was the first at
            which their sequence was confident.
        tokens: how many tokens there were, those that were never confident included.
        costs: of one step.
        batch: sequences decoded together; all must be confident.

    Raises:
        ValueError: for more exits than tokens.
    """
    if sum(own_exits) > tokens or tokens < 1:
        raise ValueError(f"{sum(own_exits)} exits of {tokens} tokens")
    depth = len(own_exits) + 1
    inside, going_on = 0, [1.0]
    for count in own_exits:
        inside += count
        going_on.append(1 - (inside / tokens) ** batch)
    # best[c]: least expected time until a check behind layer c is over, exits before it included
    best, before = [0.0] + [math.inf] * (depth - 1), [0] * depth
    for layer in range(1, depth):
        for last in range(layer):
            reached = going_on[last]
            leaving = reached - going_on[layer]
            time = best[last] + reached * ((layer - last) * costs.layer + costs.check)
            time += leaving * costs.fill
            if time < best[layer]:
                best[layer], before[layer] = time, last
    ends = [best[last] + going_on[last] * (depth - last) * costs.layer for last in range(depth)]
    at = min(range(depth), key=ends.__getitem__)
    step = ends[at] + costs.fixed
    layers: list[int] = []
    while at:
        layers.append(at)
        at = before[at]
    return Choice(tuple(reversed(layers)), step, depth * costs.layer + costs.fixed)
