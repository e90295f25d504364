"""What sharing a batch costs early exits: the layer that a batch leaves at, predicted and measured.

A batch ends its step when the last of its sequences is confident ("An Efficient Inference Framework
for Early-exit Large Language Models", section 4.1), so its exit layer is the greatest of theirs. If
F(l) is the share of tokens whose own sequence is confident after layer l or before, and sequences
are independent, a batch of B leaves after layer l or before with probability F(l)^B, and on
average at

    E(B) = sum over l = 0 .. L - 1 of (1 - F(l)^B),    F(0) = 0

of L layers. Every sequence of a batch is watched until it is confident, so that F can be counted at
any batch size. Sequences that are alike (the easy part of an answer comes for all at once) leave
earlier than this; E(1), what each would need alone, is the bound that no batch goes below.

Functions take a trial's row or a cell of `results.rows`, and read `exits_by_layer`,
`exits_by_batch` and `model_layers` from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Profile:
    """Where sequences are confident on their own."""

    cumulative: tuple[float, ...]
    """(L,) F(0) = 0, F(1), ..., F(L - 1) of a model with L layers; ascending."""
    tokens: int
    """How many tokens it was counted over."""

    def layer(self, batch: int) -> float:
        """E(B): the mean exit layer of a batch of so many independent sequences."""
        return sum(1 - share**batch for share in self.cumulative)


@dataclass(frozen=True, slots=True)
class BatchExits:
    """Steps that decoded `batch` sequences and read no prompt."""

    batch: int
    steps: float
    layer: float
    """Mean exit layer."""


def profile(metrics: Mapping[str, Any]) -> Profile | None:
    """Counted over the tokens of steps without prompts; None where there are none."""
    by_batch = metrics.get("exits_by_batch") or {}
    tokens = sum(int(size) * counts["steps"] for size, counts in by_batch.items())
    depth = round(metrics.get("model_layers") or 0)
    if not tokens or not depth:
        return None
    by_layer = metrics.get("exits_by_layer") or {}
    own = [by_layer.get(str(layer), {}).get("own_exits", 0.0) for layer in range(depth)]
    left, cumulative = 0.0, []
    for count in own:
        left += count
        cumulative.append(min(left / tokens, 1.0))
    return Profile(tuple(cumulative), round(tokens))


def measured(metrics: Mapping[str, Any]) -> list[BatchExits]:
    """What was counted at each batch size, ascending."""
    return [
        BatchExits(int(size), counts["steps"], counts["layers"] / counts["steps"])
        for size, counts in (metrics.get("exits_by_batch") or {}).items()
        if counts["steps"]
    ]


def mean_layer(found: Iterable[BatchExits]) -> float | None:
    """The mean exit layer of all these steps, a step counted once for each of its sequences."""
    weighted = [(one.batch * one.steps, one.layer) for one in found]
    tokens = sum(weight for weight, _ in weighted)
    return sum(weight * layer for weight, layer in weighted) / tokens if tokens else None


def expected(found: Iterable[BatchExits], own: Profile) -> list[BatchExits]:
    """The same steps with the exit layers that independent sequences of this profile would give."""
    return [BatchExits(one.batch, one.steps, own.layer(one.batch)) for one in found]
