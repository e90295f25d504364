"""A trace at the exits of another model, and one of its rows as a replay asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UserError
from results.traces.rates import Rates, TraceSource
from results.traces.recorded import TraceRow


def own_layers(source: TraceSource, depth: int) -> tuple[int, ...]:
    """The source's exits in a model of `depth` layers: each after the layer nearest to its share of
    the depth, before the last, ascending. Exits that fall together in a shallow model are one."""
    return tuple(_own_columns(source, depth))


def _own_columns(source: TraceSource, depth: int) -> dict[int, int]:
    """By layer of a model of `depth` layers, the exit of the source that comes to it: of several
    the nearest, and of rates the last, at which what leaves at any of them is sure."""
    together: dict[int, list[int]] = {}
    for column, share in enumerate(source.fractions if depth > 1 else ()):
        layer = min(max(round(share * depth), 1), depth - 1)
        together.setdefault(layer, []).append(column)
    if isinstance(source, Rates):
        return {layer: max(some) for layer, some in together.items()}
    return {layer: _nearest(source, some, layer / depth) for layer, some in together.items()}


def _nearest(source: TraceSource, some: Iterable[int], share: float) -> int:
    return min(some, key=lambda column: abs(source.fractions[column] - share))


def columns(source: TraceSource, layers: Sequence[int], depth: int, where: str) -> tuple[int, ...]:
    """Which exit of the source each of these layers replays: the one that comes to it, where all
    are of `own_layers`, else the nearest in depth, each another one. Raises `UserError`, which
    begins with `where`, where there are too few."""
    known = source.fractions
    if len(layers) > len(known):
        raise UserError(
            f"{where}: exits after {len(layers)} layers {list(layers)}, and the trace has "
            f"{len(known)}{_at(source)}; give fewer"
        )
    own = _own_columns(source, depth)
    if all(layer in own for layer in layers):
        return tuple(own[layer] for layer in layers)
    found = tuple(_nearest(source, range(len(known)), layer / depth) for layer in layers)
    for place, column in enumerate(found):
        if column in found[:place]:
            first = layers[found.index(column)]
            raise UserError(
                f"{where}: the exits after layers {first} and {layers[place]} of {depth} would "
                f"replay the same exit of the trace, at {known[column]:.3g} of its depth"
                f"{_at(source)}"
            )
    return found


def _at(source: TraceSource) -> str:
    shares = ", ".join(f"{x:.3g}" for x in source.fractions)
    return f" (it has exits at {shares} of its depth)" if shares else " (lengths alone)"


def check_known(
    source: TraceSource, chosen: Sequence[int], thresholds: Sequence[float], where: str
) -> None:
    """Raise `UserError`, which begins with `where`, where a replay with these thresholds at these
    exits of the source would need a confidence that was never asked for: the recorded run had left
    before, at a confidence that does not pass here."""
    for row in source.samples():
        place = unknown(row, chosen, thresholds)
        if place is not None:
            position, exit_ = place
            raise UserError(
                f"{where}: request {row.request_id}, token {position}: no confidence (NaN) for the "
                f"exit at {source.fractions[chosen[exit_]]:.3g} of the depth, which threshold "
                f"{thresholds[exit_]:g} asks for: the recorded run had left before; record it "
                "with a threshold that nothing passes"
            )


def unknown(
    row: TraceRow, chosen: Sequence[int], thresholds: Sequence[float]
) -> tuple[int, int] | None:
    """The position and exit (a place in `chosen`) of the first number that is needed and not there;
    None where all are."""
    if not len(row.positions) or not chosen:
        return None
    confidence = filled(row)[0][:, chosen].astype(np.float64)
    asked = ~np.isnan(row.confidence[:, chosen])
    passes = confidence > np.array(thresholds)
    reached = np.cumsum(passes, 1) == 0
    lacking = reached & ~asked
    if not lacking.any():
        return None
    attempt, exit_ = np.argwhere(lacking)[0]
    return int(row.positions[attempt]), int(exit_)


def filled(row: TraceRow) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """(A, E) confidences and agreements, where an exit was not asked those of the last one before
    it that was (0 and -1 where none was)."""
    exits = row.confidence.shape[1]
    asked = ~np.isnan(row.confidence)
    last = np.maximum.accumulate(np.where(asked, np.arange(exits), -1), 1)
    source = np.maximum(last, 0)
    confidence = np.take_along_axis(row.confidence, source, 1)
    agrees = np.take_along_axis(row.agrees, source, 1)
    none = last < 0
    return np.where(none, np.float32(0), confidence), np.where(none, np.int8(-1), agrees)


class PlayedRow:
    """One row at chosen exits. Positions beyond its end begin anew.

    A position at which the recorded run made no attempt (its drafts were full, or it read prompts)
    has the last attempt of the position before; attempts beyond those made repeat the last one.

    Args:
        row: the row.
        chosen: which exits.
        ends: the answer that is replayed ends where the row does. What lies beyond are drafts
            after a wrong one, which the recorded run made too.
    """

    def __init__(self, row: TraceRow, chosen: Sequence[int], *, ends: bool = False) -> None:
        confidence, agrees = filled(row)
        self.row = row
        self._period = max(row.answer_tokens - 1, 1)
        self._confidence: list[list[float]] = confidence[:, list(chosen)].tolist()
        self._agrees: list[list[int]] = agrees[:, list(chosen)].tolist()
        self._attempts = _by_position(row.positions.tolist(), self._period)
        self._beyond = _beyond(row.positions.tolist(), self._period) if ends else {}

    def confidence(self, position: int, attempt: int, exit_: int) -> float:
        """How sure exit number `exit_` is at a position, the `attempt`-th time (from 0) that it is
        asked there; 0 where the trace has no attempt at all."""
        found = self._found(position)
        if not found:
            return 0.0
        return self._confidence[found[min(attempt, len(found) - 1)]][exit_]

    def agrees(self, position: int, attempt: int, exit_: int) -> bool:
        """Whether the exit's token is the last layer's. What nobody knows of one attempt another
        one at the position may tell; what none tells is not."""
        found = self._found(position)
        if not found:
            return False
        told = self._agrees[found[min(attempt, len(found) - 1)]][exit_]
        if told < 0:
            told = max((self._agrees[other][exit_] for other in found), default=0)
        return told > 0

    def _found(self, position: int) -> Sequence[int]:
        return self._beyond.get(position) or self._attempts[position % self._period]


def _by_position(positions: Sequence[int], period: int) -> list[list[int]]:
    """The attempts at each position before the answer's end, in order."""
    made: list[list[int]] = [[] for _ in range(period)]
    for attempt, position in enumerate(positions):
        if position < period:
            made[position].append(attempt)
    before: list[int] = next((attempts[:1] for attempts in made if attempts), [])
    for position, attempts in enumerate(made):
        if attempts:
            before = attempts[-1:]
        else:
            made[position] = before
    return made


def _beyond(positions: Sequence[int], period: int) -> dict[int, list[int]]:
    """Likewise at each position after it."""
    made: dict[int, list[int]] = {}
    for attempt, position in enumerate(positions):
        if position >= period:
            made.setdefault(position, []).append(attempt)
    return made
