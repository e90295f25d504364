"""What early predictions save: a prediction from rates, and a replay of a held-out text.

The model's layers are cut at its exit layers into segments. A decode cycle drafts up to K tokens at
exits and ends with one pass through the whole model, which verifies them. Two functions say what a
cycle costs and yields: `predict` from exit rates and an acceptance (a closed form that takes them
for independent), and `replay` from the confidences and agreements of a held-out text, position by
position. `backends.engine.costs.exit_choice` chooses exit layers and thresholds by replay.

Costs are microseconds of one pass; any other unit gives the same ratios. A segment's pass at one
row and at max_drafts + 1 rows may differ. What lies between is taken as a straight line, so that
the cost of a cycle is a sum over its tokens: one that leaves at exit x pays the passes and checks
that it caused, and one row more in every pass behind x.

Source: AdaDecode (ICML 2025), algorithm 1, made exact over contiguous frontiers; the closed form is
the project's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Microseconds of the parts of a step, S segments and S - 1 exits.

    `segments` and `final_head` are of one row; `segments_full` and `final_head_full` of
    max_drafts + 1 rows (None: the same, as when passes are padded). `plain` is plain decoding's
    cost of a token where that is not the sum of the segments and the final head.
    """

    segments: tuple[float, ...]
    exit_heads: tuple[float, ...]
    final_head: float
    segments_full: tuple[float, ...] | None = None
    final_head_full: float | None = None
    plain: float | None = None

    def __post_init__(self) -> None:
        full = self.segments if self.segments_full is None else self.segments_full
        if not self.segments or len(self.exit_heads) != len(self.segments) - 1:
            raise ValueError(
                f"{len(self.segments)} segments and {len(self.exit_heads)} exit heads; "
                "expected one head fewer than segments"
            )
        if len(full) != len(self.segments):
            raise ValueError(f"{len(full)} full costs for {len(self.segments)} segments")
        numbers = [*self.segments, *full, *self.exit_heads, self.final_head]
        numbers += [x for x in (self.final_head_full, self.plain) if x is not None]
        if not all(math.isfinite(x) and x >= 0 for x in numbers):
            raise ValueError(f"costs must be finite and not negative, found {numbers}")

    def per_token(self) -> float:
        """Plain decoding: every segment and the final head, one row each."""
        return sum(self.segments) + self.final_head if self.plain is None else self.plain

    def of_drafts(self, max_drafts: int) -> Floats:
        """A draft's cost by the exit it leaves at, [exits]: the segments and checks up to there,
        and one row more in each later pass (the final head's rows included)."""
        more = np.array(self._extra_rows(max_drafts))
        caused = np.cumsum(np.add(self.segments[:-1], self.exit_heads))
        behind = more.sum() - np.cumsum(more[:-1])
        return np.asarray(caused + behind + self._extra_head(max_drafts), np.float64)

    def of_pass(self, *, checked: bool) -> float:
        """The pass that ends a cycle, with its own row only; without checks behind K drafts."""
        return sum(self.segments) + self.final_head + (sum(self.exit_heads) if checked else 0.0)

    def _extra_rows(self, max_drafts: int) -> list[float]:
        full = self.segments if self.segments_full is None else self.segments_full
        return [max(b - a, 0.0) / max_drafts for a, b in zip(self.segments, full, strict=True)]

    def _extra_head(self, max_drafts: int) -> float:
        full = self.final_head if self.final_head_full is None else self.final_head_full
        return max(full - self.final_head, 0.0) / max_drafts


@dataclass(frozen=True, slots=True)
class Prediction:
    """What decoding with early predictions is expected to give."""

    speedup: float
    """Over plain decoding, per token."""
    tokens_per_cycle: float
    cost_per_cycle: float
    """In the unit of the costs."""
    segment_passes_per_token: float


def predict(
    segment_costs: Sequence[float],
    exit_head_costs: Sequence[float],
    final_head_cost: float,
    exit_rates: Sequence[float],
    acceptance: float,
    max_drafts: int,
    *,
    segment_costs_full: Sequence[float] | None = None,
    final_head_cost_full: float | None = None,
) -> Prediction:
    """The expected speed-up when each exit is taken and each draft accepted independently.

    `exit_rates[s]` is the share of the checks at exit s that end in an early prediction.
    `acceptance` is the probability that a draft is right when all before it in its cycle were
    (which is more than accepted / drafted: that counts what a rejection discards). Costs are
    microseconds of one row; `..._full` of max_drafts + 1 rows. Raises `ValueError` for lengths that
    do not fit, rates outside [0, 1] and fewer than one draft.

    With f_s = e_s prod_{j<s} (1 - e_j) and F = sum f_s a cycle has k drafts with probability
    F^k (1 - F) for k < K and F^K for K, and yields (1 - a^(k+1)) / (1 - a) tokens.
    """
    costs = StepCosts(
        tuple(segment_costs),
        tuple(exit_head_costs),
        final_head_cost,
        None if segment_costs_full is None else tuple(segment_costs_full),
        final_head_cost_full,
    )
    _check(costs, exit_rates, max_drafts)
    if not 0 <= acceptance <= 1:
        raise ValueError(f"acceptance {acceptance}; expected a share from 0 to 1")
    rates = np.asarray(exit_rates, float)
    left = rates * np.cumprod(np.concatenate(([1.0], 1 - rates[:-1])))[: len(rates)]
    early = min(float(left.sum()), 1.0)
    drafts = np.arange(max_drafts + 1)
    chance = early**drafts * np.where(drafts < max_drafts, 1 - early, 1.0)
    yielded = np.cumsum(acceptance**drafts)
    mean_drafts, tokens = float(chance @ drafts), float(chance @ yielded)
    shares = left / early if early else left
    full = float(chance[-1])
    cost = mean_drafts * float(shares @ costs.of_drafts(max_drafts))
    cost += (1 - full) * costs.of_pass(checked=True) + full * costs.of_pass(checked=False)
    passes = mean_drafts * float(shares @ np.arange(1, len(rates) + 1)) + len(costs.segments)
    return Prediction(costs.per_token() * tokens / cost, tokens, cost, passes / tokens)


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
    rejected_cycles: int
    """Cycles whose verification threw a draft away."""
    tokens: int
    cost: float
    """In the unit of the costs."""
    segment_passes_per_token: float

    @property
    def exit_rates(self) -> tuple[float, ...]:
        """Exits per check, as `predict` takes them; 0 where nothing was checked."""
        return tuple(x / max(c, 1) for x, c in zip(self.exits, self.checks, strict=True))

    @property
    def acceptance(self) -> float:
        """The share of right ones among the drafts up to a cycle's first wrong one, as `predict`
        takes it; 1 without drafts."""
        accepted = sum(self.accepted)
        judged = accepted + self.rejected_cycles
        return accepted / judged if judged else 1.0

    @property
    def rejection_rate(self) -> float:
        """The share of all drafts that were thrown away, as metrics have it; 0 without drafts."""
        drafted = sum(self.exits)
        return 1 - sum(self.accepted) / drafted if drafted else 0.0


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
    by_exit = np.array([int((c[begun + drafts] - c[begun]).sum()) for c in until], int)
    accepted = tuple(int((c[begun + kept] - c[begun]).sum()) for c in until)
    unchecked = int((drafts == max_drafts).sum())
    cycles, tokens = len(begun), int(kept.sum()) + len(begun)
    cost = float(by_exit @ costs.of_drafts(max_drafts)) if none else 0.0
    cost += (cycles - unchecked) * costs.of_pass(checked=True)
    cost += unchecked * costs.of_pass(checked=False)
    behind = np.cumsum(by_exit[::-1])[::-1]
    passes = int(by_exit @ np.arange(1, none + 1)) + cycles * (none + 1)
    return Replay(
        speedup=costs.per_token() * tokens / cost if cost else 1.0,
        checks=tuple(int(x) + cycles - unchecked for x in behind),
        exits=tuple(int(x) for x in by_exit),
        accepted=accepted,
        cycles=cycles,
        rejected_cycles=int((kept < drafts).sum()),
        tokens=tokens,
        cost=cost,
        segment_passes_per_token=passes / tokens,
    )


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
