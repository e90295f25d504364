"""How many requests a probe has: a load that ends before its queue is as long as the objective
allows, or before as many are under way as the rate brings, finds rates that nobody can sustain."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from harness.core.nouns import Slo
from results.goodput.saturation import PASSES
from results.metrics import latency
from results.metrics.arrays import RequestArrays

SPANS = 20.0
"""At a rate that is 1/SPANS too high the queue reaches the bound just when the probe ends."""
SLOWER = 3.0
"""Times as long as alone an answer of a full engine may take, for all that is known before."""
FIRST = 2.0
"""The first rate, in requests that an idle system answers one after the other in that time."""
FIRST_S = 120.0
"""A first probe that would last longer comes at a higher rate, at which no more are under way than
`FIRST_UNDER_WAY`: any engine for more than one user takes so many."""
FIRST_UNDER_WAY = 8.0


@dataclass(frozen=True, slots=True)
class IdleSystem:
    """What one request at a time takes."""

    e2e_s: float
    """The mean."""
    tpot_s: float
    """The median; NaN where no answer has two tokens."""

    @classmethod
    def of(cls, requests: RequestArrays) -> IdleSystem:
        """Of a probe with one request at a time."""
        tpot_s = latency.tpot_s(requests)
        tpot_s = tpot_s[np.isfinite(tpot_s)]
        mean_s = float(latency.e2e_s(requests).mean())
        return cls(mean_s, float(np.median(tpot_s)) if len(tpot_s) else math.nan)

    def first_rate(self, requests: int) -> float:
        """Of a search whose probes have at least so many requests. Requests per second."""
        low = FIRST / self.e2e_s
        return max(low, min(requests / FIRST_S, FIRST_UNDER_WAY / self.e2e_s))

    def lasts_s(self, slo: Slo) -> float:
        """The seconds over which a probe's requests come, at least: `SPANS` times the longest bound
        of what waits, and `PASSES` answers as slow as the objective allows."""
        slower = SLOWER
        if slo.tpot_ms is not None and self.tpot_s > 0:
            slower = min(slower, slo.tpot_ms / 1e3 / self.tpot_s)
        if slo.e2e_ms is not None and self.e2e_s > 0:
            slower = min(slower, slo.e2e_ms / 1e3 / self.e2e_s)
        return max(SPANS * waited_s(slo), PASSES * max(slower, 1.0) * self.e2e_s)

    def enough_requests(self, rate: float, slo: Slo, wished: int) -> int:
        """So many that they come over `lasts_s`, and as many as are wished for."""
        return max(wished, math.ceil(rate * self.lasts_s(slo)))

    def highest_rate(self, requests: int, slo: Slo) -> float:
        """The highest rate, of four digits, at which no more than so many are enough."""
        if not (lasts_s := self.lasts_s(slo)):
            return math.inf
        return float(f"{requests / lasts_s * (1 - 1e-3):.4g}")


def waited_s(slo: Slo) -> float:
    """The longest bound of what a queue adds to, in seconds."""
    return max(slo.ttft_ms or 0.0, slo.e2e_ms or 0.0) / 1e3
