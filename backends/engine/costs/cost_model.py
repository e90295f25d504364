"""What early predictions save, tried out on a held-out text.

The model's layers are cut at its exit layers into segments. A decode cycle drafts up to K tokens at
exits and ends with one pass through the whole model, which verifies them. `replay` says what that
yields and costs from the confidences and agreements of a held-out text, position by position.
`backends.engine.costs.exit_choice` chooses exit layers and thresholds by it.

Source: AdaDecode (ICML 2025), algorithm 1, made exact over contiguous frontiers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.pass_costs import StepCosts

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Trace:
    """Held-out text as the exit heads see it, n positions in order, response after response."""

    layers: tuple[int, ...]
    """The exit layers of the columns, ascending."""
    confidence: NDArray[Any]
    """[n, layers], the probability of the head's best token."""
    agrees: NDArray[Any]
    """[n, layers], whether that token is the final layer's greedy one."""
    starts: NDArray[Any]
    """[responses + 1], where each response begins; the last entry is n."""

    def __post_init__(self) -> None:
        shape = (len(self.confidence), len(self.layers))
        if self.confidence.shape != shape or self.agrees.shape != shape:
            raise ValueError(
                f"confidences {self.confidence.shape}, agreements {self.agrees.shape}; "
                f"expected {shape} for layers {self.layers}"
            )
        ends = self.starts
        if len(ends) < 2 or ends[0] != 0 or ends[-1] != shape[0] or (np.diff(ends) < 1).any():
            raise ValueError("response starts must ascend from 0 to the number of positions")

    def column(self, layer: int) -> int:
        """Raises `ValueError` for a layer without a head in the trace."""
        if layer not in self.layers:
            raise ValueError(f"layer {layer} is not in the trace; it has {list(self.layers)}")
        return self.layers.index(layer)


@dataclass(frozen=True, slots=True)
class Replay:
    """What decoding a trace did; counts are by exit, in the order of the layers."""

    speedup: float
    checks: tuple[int, ...]
    exits: tuple[int, ...]
    accepted: tuple[int, ...]
    cycles: int
    tokens: int

    def at(self, costs: StepCosts, max_drafts: int) -> float:
        """The speed-up of the same at other costs."""
        cost = sum(costs.spent(self.cycles, self.exits, self.checks, max_drafts))
        return costs.per_token() * self.tokens / cost if cost else 1.0


def replay(
    trace: Trace, layers: Sequence[int], gammas: Sequence[float], costs: StepCosts, max_drafts: int
) -> Replay:
    """Decode the trace with exits at `layers` (ascending) and their thresholds `gammas`.

    Plays the exact step: a position leaves at the first exit whose confidence is over its
    threshold, unless K drafts are pending; a full pass emits the drafts up to the first wrong one
    and one token more. What follows a wrong draft is not in the trace. It is taken to exit as the
    right text does at the same places, and thrown away. The last position of a response never
    exits, since a stop token is never drafted. Raises `ValueError` for layers that are not in the
    trace, lengths that do not fit and fewer than one draft.
    """
    _check(costs, gammas, max_drafts)
    columns = [trace.column(layer) for layer in layers]
    if columns != sorted(set(columns)):
        raise ValueError(f"exit layers {list(layers)}; expected them to ascend")
    n, none = len(trace.confidence), len(columns)
    exits, right = np.full(n, none, np.int8), np.zeros(n, bool)
    for place in reversed(range(none)):
        # a plain float would be rounded to the type of the confidences first
        over = trace.confidence[:, columns[place]] > np.float64(gammas[place])
        exits[over] = place
        right[over] = trace.agrees[over, columns[place]] != 0
    last = trace.starts[1:] - 1
    exits[last], right[last] = none, False
    positions = np.arange(n)
    drafts = np.minimum(_next(exits == none) - positions, max_drafts)
    kept = np.minimum(_next(~right) - positions, drafts)
    begun = _walk((positions + kept + 1).tolist())
    drafts, kept = drafts[begun], kept[begun]
    until = [np.concatenate(([0], np.cumsum(exits == place))) for place in range(none)]
    left = tuple(int((c[begun + drafts] - c[begun]).sum()) for c in until)
    accepted = tuple(int((c[begun + kept] - c[begun]).sum()) for c in until)
    unchecked = int((drafts == max_drafts).sum())
    cycles, tokens = len(begun), int(kept.sum()) + len(begun)
    checks = tuple(sum(left[place:]) + cycles - unchecked for place in range(none))
    played = Replay(1.0, checks, left, accepted, cycles, tokens)
    return replace(played, speedup=played.at(costs, max_drafts))


def _next(mask: NDArray[np.bool_]) -> Integers:
    """For each place the first one from there on where the mask holds; the length if none does."""
    places = np.where(mask, np.arange(len(mask)), len(mask))
    return np.minimum.accumulate(places[::-1])[::-1]


def _walk(following: list[int]) -> Integers:
    """The positions reached from 0, each leading to `following` it, up to the end."""
    reached, place, end = [], 0, len(following)
    while place < end:
        reached.append(place)
        place = following[place]
    return np.array(reached)


def _check(costs: StepCosts, rates: Sequence[float], max_drafts: int) -> None:
    if len(rates) != len(costs.exit_heads):
        raise ValueError(f"{len(rates)} rates or thresholds for {len(costs.exit_heads)} exits")
    if not all(0 <= rate <= 1 for rate in rates):
        raise ValueError(f"rates and thresholds must lie in [0, 1], found {list(rates)}")
    if max_drafts < 1:
        raise ValueError(f"max_drafts {max_drafts}; expected at least 1")
