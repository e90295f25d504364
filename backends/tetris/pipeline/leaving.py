"""Who leaves at which ramp: decisions that are replayed, drawn from a survival curve or logged."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.tetris.survival import RampLog
from harness.core.errors import UserError

Depths = NDArray[np.int64]
MOST_DECISIONS = 10**9
"""Inputs times layers, of a byte each and as many again where cuts are asked."""


class LeaveDecisions:
    """N inputs of a model with L layers, and whether each leaves at a ramp that is on.

    leaves: (N, L - 1) bool: would leave behind layer i, the ramps behind layers 0 to L - 2. Those
        of one input hang together, so that any choice of ramps can be replayed.
    """

    def __init__(self, leaves: NDArray[np.bool_]) -> None:
        self._leaves = leaves

    def __len__(self) -> int:
        return len(self._leaves)

    @property
    def layers(self) -> int:
        """L."""
        return int(self._leaves.shape[1]) + 1

    def depths(self, cuts: Sequence[int] | None = None) -> Depths:
        """Layers that each input runs when only ramps behind so many layers (1..L-1) are on; None:
        all. (N,) int64 of 1..L."""
        ends = np.arange(1, self.layers) if cuts is None else np.array(sorted(cuts), np.int64)
        if not len(ends):
            return np.full(len(self), self.layers)
        asked = self._leaves[:, ends - 1]
        return np.where(asked.any(axis=1), ends[asked.argmax(axis=1)], self.layers)

    def alive(self, cuts: Sequence[int] | None = None) -> NDArray[np.float64]:
        """Share alive on entering each layer and after the last, (L + 1,) as a profile has it, when
        only ramps behind so many layers are on; None: all."""
        counts = np.bincount(self.depths(cuts), minlength=self.layers + 1)
        gone = np.concatenate([[0], np.cumsum(counts)[:-1]])
        gone[1:] += counts[1:] * (np.arange(1, self.layers + 1) < self.layers)
        return np.asarray(1.0 - gone / len(self))

    def by_ramp(self) -> NDArray[np.bool_]:
        """Who would leave at each ramp, (L - 1, N) bool, a ramp's inputs side by side."""
        return np.ascontiguousarray(self._leaves.T)

    def first(self, count: int) -> LeaveDecisions:
        """The first `count` inputs, or all where there are fewer."""
        return LeaveDecisions(self._leaves[:count])

    def rest(self, count: int) -> LeaveDecisions:
        """All inputs but the first `count`."""
        return LeaveDecisions(self._leaves[count:])

    def dealt(self, parts: int) -> list[LeaveDecisions]:
        """The inputs in turn to each of so many parts, which is at most N."""
        return [LeaveDecisions(self._leaves[place::parts]) for place in range(parts)]

    def then(self, other: LeaveDecisions) -> LeaveDecisions:
        """These inputs and after them the other ones: a workload that shifts."""
        return LeaveDecisions(np.concatenate([self._leaves, other._leaves]))


def drawn(survival: Sequence[float], inputs: int, seed: int) -> LeaveDecisions:
    """Inputs whose share alive on entering layer i is `survival[i]` (L + 1 values) with all ramps
    on. Who is sure at one ramp stays sure at every later one."""
    hardness = np.random.default_rng([seed, 0]).random(inputs)
    alive = np.asarray(survival, float)[1:-1]
    return LeaveDecisions(hardness[:, None] >= alive)


def logged(log: RampLog, layers: int, inputs: int) -> LeaveDecisions:
    """The inputs of a log one after the other, and from its beginning again until there are enough.

    Who really left is taken to leave at every later ramp: it was asked no more (`RampLog.alive`).
    """
    asked = ~np.isnan(log.confidence)
    says = log.leaves & asked
    gone = np.maximum.accumulate(says, axis=1) & ~asked
    leaves = np.zeros((len(says), layers - 1), bool)
    inside = [place for place, after in enumerate(log.after) if after < layers]
    leaves[:, [log.after[place] - 1 for place in inside]] = (says | gone)[:, inside]
    return LeaveDecisions(leaves[np.arange(inputs) % len(leaves)])


def log_from(told: Any, where: str, layers: int) -> RampLog:
    """A log from its mapping of `after`, `confidence` (null where not asked) and `leaves`.

    Raises:
        UserError: begins with `where`, for anything else.
    """
    keys = ("after", "confidence", "leaves")
    if not isinstance(told, dict) or sorted(told) != sorted(keys):
        raise UserError(f"{where}: expected a mapping with the keys {', '.join(keys)}")
    after = told["after"]
    if not isinstance(after, list) or not after or {type(one) for one in after} != {int}:
        raise UserError(f"{where}: after: expected a list of layers, whole numbers")
    if after != sorted({one for one in after if 1 <= one <= layers}):
        raise UserError(f"{where}: after: expected ascending ramps behind 1 to {layers}")
    confidence = _rows(told, "confidence", (int, float, NoneType), "numbers or null", where)
    leaves = _rows(told, "leaves", (bool,), "true or false", where)
    if len(confidence) != len(leaves) or not leaves:
        counts = f"{len(confidence)} rows of confidence and {len(leaves)} of leaves"
        raise UserError(f"{where}: expected a row of each for one input or more, found {counts}")
    try:
        numbers = np.array(confidence, float)
        if np.isnan(numbers).sum() != sum(row.count(None) for row in confidence):
            raise ValueError("NaN is no confidence; expected null where a ramp was not asked")
        return RampLog(tuple(after), numbers, np.array(leaves, bool))
    except (OverflowError, ValueError) as error:
        raise UserError(f"{where}: no log of ramps: {error}") from None


def _rows(
    told: dict[str, Any], key: str, types: tuple[type, ...], what: str, where: str
) -> list[list[Any]]:
    """An input a row and in it a value for each ramp, none of any other type: true is no number,
    and 1 not true."""
    rows, wide, allowed = told[key], len(told["after"]), set(types)
    if not isinstance(rows, list):
        raise UserError(f"{where}: {key}: expected a list of rows")
    for place, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != wide or not set(map(type, row)) <= allowed:
            raise UserError(f"{where}: {key}[{place}]: expected a list of {wide} {what}")
    return rows
