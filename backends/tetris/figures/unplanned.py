"""Why a system that is planned has no plan at a point of a figure."""

from __future__ import annotations

from functools import cache

from backends.tetris.figures.goodput import IN_TURN, PIPELINE, asked_plans
from backends.tetris.figures.point import FigurePoint
from backends.tetris.figures.shift import AGAIN, asked_plan
from backends.tetris.planner import least_slo_ms, plan_or_none, rounded
from backends.tetris.profile import Wanted

PLANNED = (PIPELINE, IN_TURN, AGAIN)


@cache
def needed_slo_ms(
    point: FigurePoint, system: str, rate: float, mixes: tuple[float, ...]
) -> float | None:
    """The smallest SLO that a plan meets, infinite where none has the rate (0: any) at any; None
    where there is a plan, and for a system that is not planned. `mixes`: of `goodput_by_mix`."""
    if system not in PLANNED:
        return None
    asked = [asked_plan(point, mixes)] if mixes else list(asked_plans(point, system))
    wanted = Wanted(point.slo_ms, target=rate or None)
    if not asked or any(plan_or_none(*one, wanted) for one in asked):
        return None
    return float(rounded(min(least_slo_ms(*one, wanted) for one in asked)))
