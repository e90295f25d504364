"""Which layers to leave at, and how sure an exit must be: tried out on a held-out trace."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from backends.engine.costs.cost_model import Trace, replay
from harness.core.pass_costs import StepCosts

GAMMAS = (0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
"""The thresholds tried unless others are given."""
MAX_EXITS = 3
LEAST_GAIN = 0.005
_MOST_SETS = 64
"""So many sets of exit layers of each size are tried; where there are more, those that add a layer
to the best smaller sets."""
_ALL_ORDERS = 3

Speedup = Callable[[tuple[int, ...], tuple[float, ...]], float]
"""Exit layers and their thresholds -> what the replay predicts."""


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """Microseconds of the parts of a step before the exit layers are known.

    `layers` has each layer's at one row and `layers_full` at max_drafts + 1 rows (None: the same).
    `per_pass` is what running one more segment costs whatever its length, host time included.
    """

    layers: Sequence[float]
    exit_head: float
    final_head: float
    layers_full: Sequence[float] | None = None
    final_head_full: float | None = None
    per_pass: float = 0.0

    def cut(self, exits: Sequence[int]) -> StepCosts:
        """The costs of segments that end at `exits` and at the last layer; plain decoding runs all
        layers in one pass."""
        full = self.layers if self.layers_full is None else self.layers_full
        bounds = [0, *exits, len(self.layers)]
        ranges = [slice(*pair) for pair in itertools.pairwise(bounds)]
        return StepCosts(
            segments=tuple(sum(self.layers[r]) + self.per_pass for r in ranges),
            exit_heads=(self.exit_head,) * len(exits),
            final_head=self.final_head,
            segments_full=tuple(sum(full[r]) + self.per_pass for r in ranges),
            final_head_full=self.final_head_full,
            plain=sum(self.layers) + self.per_pass + self.final_head,
        )


@dataclass(frozen=True, slots=True)
class ExitChoice:
    """The exits that pay best on a trace; none of either where no exit pays."""

    layers: tuple[int, ...]
    gammas: tuple[float, ...]
    speedup: float
    """As predicted by the replay; 1 without exits."""


def choose(
    trace: Trace,
    costs: LayerCosts,
    candidate_layers: Iterable[int],
    max_drafts: int,
    *,
    gammas: Sequence[float] = GAMMAS,
) -> ExitChoice:
    """At most `MAX_EXITS` exit layers, and the threshold of each, that decode the trace fastest.

    Sets of one layer try every threshold. Larger sets begin with the thresholds of the set they
    extend and improve one layer's threshold at a time until none can be improved; the best set is
    built up again from other beginnings. More exits are chosen only where they gain `LEAST_GAIN`
    relatively, so that noise in the trace adds no heads.
    One element in `gammas` fixes the threshold. Raises `ValueError` for a layer that the trace does
    not have or that the model cannot exit at, and for an empty `gammas`.
    """
    candidates = _checked(costs, candidate_layers, gammas)
    speedup, tried = _speedup(trace, costs, candidates, max_drafts), sorted(set(gammas))
    best = ExitChoice((), (), 1.0)
    smaller = [best]
    for _ in range(min(MAX_EXITS, len(candidates))):
        found: dict[tuple[int, ...], ExitChoice] = {}
        for base, layer in itertools.product(smaller, candidates):
            layers = tuple(sorted({*base.layers, layer}))
            if layer in base.layers or layers in found or len(found) == _MOST_SETS:
                continue
            found[layers] = _tuned(speedup, base, layer, tried)
        smaller = sorted(found.values(), key=lambda choice: -choice.speedup)
        if smaller[0].speedup > best.speedup * (1 + LEAST_GAIN):
            best = smaller[0]
    return _retuned(speedup, best.layers, tried)


def tune(
    trace: Trace,
    costs: LayerCosts,
    layers: Sequence[int],
    max_drafts: int,
    *,
    gammas: Sequence[float] = GAMMAS,
) -> ExitChoice:
    """The best thresholds for exits at exactly these layers, whether they pay or not, and what the
    replay predicts of them; the errors are those of `choose`."""
    layers = _checked(costs, layers, gammas)
    return _retuned(_speedup(trace, costs, layers, max_drafts), layers, sorted(set(gammas)))


def _checked(costs: LayerCosts, layers: Iterable[int], gammas: Sequence[float]) -> list[int]:
    if not gammas or any(not 0 <= g <= 1 for g in gammas):
        raise ValueError(f"thresholds {list(gammas)}; expected some in [0, 1]")
    found = sorted(set(layers))
    if strange := [x for x in found if not 0 < x < len(costs.layers)]:
        raise ValueError(f"exit layers {strange}; the model has {len(costs.layers)} layers")
    return found


def _speedup(trace: Trace, costs: LayerCosts, layers: Sequence[int], max_drafts: int) -> Speedup:
    """The replay of exits and thresholds among `layers`; each is played once."""
    columns = [trace.column(layer) for layer in layers]
    confidence = np.asfortranarray(trace.confidence[:, columns], np.float64)
    agrees = np.asfortranarray(trace.agrees[:, columns] != 0)
    narrow = Trace(tuple(layers), confidence, agrees, trace.starts)

    @functools.cache
    def of(exits: tuple[int, ...], gammas: tuple[float, ...]) -> float:
        return replay(narrow, exits, gammas, costs.cut(exits), max_drafts).speedup

    return of


def _retuned(speedup: Speedup, layers: Sequence[int], gammas: Sequence[float]) -> ExitChoice:
    """The best of the thresholds found when the layers are added one by one in several orders."""
    if len(layers) <= _ALL_ORDERS:
        orders = list(itertools.permutations(layers))
    else:
        orders = [tuple(layers), tuple(reversed(layers))]
    tried = []
    for order in orders:
        found = ExitChoice((), (), 1.0)
        for layer in order:
            found = _tuned(speedup, found, layer, gammas)
        tried.append(found)
    return max(tried, key=lambda choice: choice.speedup)


def _tuned(speedup: Speedup, base: ExitChoice, layer: int, gammas: Sequence[float]) -> ExitChoice:
    """`base` with one layer more, its thresholds improved one by one, the new one's first."""
    chosen = dict(zip(base.layers, base.gammas, strict=True))
    layers = tuple(sorted({*chosen, layer}))
    chosen[layer] = gammas[0]
    best = ExitChoice(layers, (), 0.0)
    order = [layer, *(x for x in layers if x != layer)]
    settled = 0
    for changed in itertools.cycle(order):
        before = best
        for gamma in gammas:
            tried = tuple(gamma if x == changed else chosen[x] for x in layers)
            found = speedup(layers, tried)
            if found > best.speedup:
                best = ExitChoice(layers, tried, found)
        chosen = dict(zip(layers, best.gammas, strict=True))
        settled = settled + 1 if best is before else 1
        if settled >= len(order) or len(gammas) == 1:
            return best
    raise AssertionError("cycle over a layer never ends")
