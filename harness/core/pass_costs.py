"""What the passes of a model with early exits cost: the one formula from counts to microseconds.

The model's layers are cut at its exit layers into segments. A backend measures one pass of each
segment and head before any trial and tells them with its options; with the counts of a request
they give the time that its passes take (`results.metrics.exit_costs`), with those of a replayed
text what a choice of exits would gain (`backends.engine.costs.cost_model`).

A segment's pass at one row and at max_drafts + 1 rows may differ. What lies between is taken as a
straight line. So every position goes through every segment once, and one that leaves at an exit is
one row more of somebody's pass in the segments after it: it pays the full cost less the cost of
one row, divided by max_drafts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Microseconds of the parts of a step, S segments and S - 1 exits; any other unit gives the
    same ratios.

    `segments` and `final_head` are of one row; `segments_full` and `final_head_full` of
    max_drafts + 1 rows (None: the same, as when passes are padded). `plain` is plain decoding's
    cost of a token where that is not the sum of the segments and the final head.

    Raises:
        ValueError: for lengths that do not fit and for costs that are negative or not finite.
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

    def spent(
        self, steps: Any, exits: Sequence[Any], checks: Sequence[Any], max_drafts: int
    ) -> tuple[Any, Any]:
        """Microseconds of counted passes at one row each, and of their further rows.

        Args:
            steps: passes through the whole model; a number, or an array of one for each request.
            exits, checks: at each exit, how many tokens left there and how often its head was
                asked; numbers or arrays as `steps` is.
            max_drafts: most tokens that wait for a pass of the whole model, at least 1.
        """

        def of_a_row(one: float, full: float | None) -> float:
            return 0.0 if full is None else max(full - one, 0.0) / max_drafts

        nothing = steps * 0.0
        one_row = steps * self.final_head
        for count, head in zip(checks, self.exit_heads, strict=True):
            one_row = one_row + count * head
        more = sum(exits, nothing) * of_a_row(self.final_head, self.final_head_full)
        many = self.segments if self.segments_full is None else self.segments_full
        for place, (one, full) in enumerate(zip(self.segments, many, strict=True)):
            one_row = one_row + (steps + sum(exits[place:], nothing)) * one
            more = more + sum(exits[:place], nothing) * of_a_row(one, full)
        return one_row, more

    def to_json(self) -> dict[str, Any]:
        """The costs as a backend tells them."""
        return {
            "plain_us": self.plain,
            "segment_us": list(self.segments),
            "segment_us_full": None if self.segments_full is None else list(self.segments_full),
            "exit_head_us": list(self.exit_heads),
            "final_head_us": self.final_head,
            "final_head_us_full": self.final_head_full,
        }


def costs_from_json(told: Mapping[str, Any]) -> StepCosts:
    """The inverse of `StepCosts.to_json`; what may be None may be absent or 0. Raises `KeyError`,
    `TypeError` or `ValueError` for anything else."""
    full, final, plain = (
        told.get(name) for name in ("segment_us_full", "final_head_us_full", "plain_us")
    )
    return StepCosts(
        segments=tuple(float(x) for x in told["segment_us"]),
        exit_heads=tuple(float(x) for x in told["exit_head_us"]),
        final_head=float(told["final_head_us"]),
        segments_full=tuple(float(x) for x in full) if full else None,
        final_head_full=float(final) if final else None,
        plain=float(plain) if plain else None,
    )
