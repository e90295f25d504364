"""Choosing a threshold with a guarantee: Learn then Test (Angelopoulos, Bates, Candès, Jordan and
Lei 2021), as CALM uses it for early exits (Schuster et al. 2022, section 4).

Each setting's hypothesis is "its mean loss is above the limit". Settings are tested in an order
fixed beforehand, from the safest on, each at the full level, up to the first that is not rejected
(fixed-sequence testing): the chance that any rejected one has a mean loss above the limit is then
at most the level, whatever the losses' distribution and however they hang together from setting to
setting. The losses of one setting must be independent, not identically distributed: Hoeffding's
(1963, theorem 1) and Bentkus' (2004) bounds hold for the mean of unequal expectations too, so a
fixed number of prompts from each of several workloads is a valid sample of their mixture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_STEPS = 60
"""Halvings of an interval of length 1: below the distance of two floats."""
_MOST = 10_000_000


def p_value(losses: Sequence[float], limit: float, *, binary: bool = False) -> float:
    """How likely a mean loss as low as that of `losses` is when the true mean is above `limit`.

    Args:
        losses: independent losses between 0 and 1, at least one.
        limit: the mean loss allowed, strictly between 0 and 1.
        binary: the losses are 0 or 1 by definition, so that their sum has an exact distribution.

    Raises:
        ValueError: for losses or a limit outside these ranges.
    """
    if not losses or not all(0.0 <= loss <= 1.0 for loss in losses):
        raise ValueError("expected one loss at the least, each between 0 and 1")
    if not 0.0 < limit < 1.0:
        raise ValueError(f"limit: expected a number between 0 and 1, got {limit!r}")
    if binary and not all(loss in (0.0, 1.0) for loss in losses):
        raise ValueError("binary losses are 0 or 1")
    return _p_value(math.fsum(losses), len(losses), limit, binary)


def upper_bound(losses: Sequence[float], level: float, *, binary: bool = False) -> float:
    """The mean loss that these losses do not exceed with confidence 1 - `level`: the lowest limit
    whose `p_value` is at most `level`, 1 where there is none. It holds for one setting named
    beforehand, and is not corrected for a choice among several."""
    total, count = math.fsum(losses), len(losses)
    low, high = total / count, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if not 0.0 < middle < 1.0 or _p_value(total, count, middle, binary) <= level:
            high = middle
        else:
            low = middle
    return high


def samples_needed(mean: float, limit: float, level: float, *, binary: bool = False) -> int | None:
    """The number of losses with this `mean` from which on the hypothesis is rejected; None where no
    ten million are enough, and for a mean that is not below the limit."""
    if not mean < limit:
        return None

    def enough(count: int) -> bool:
        total = math.ceil(mean * count) if binary else mean * count
        return _p_value(total, count, limit, binary) <= level

    high = 1
    while not enough(high):
        high *= 2
        if high > _MOST:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def accepted(p_values: Sequence[float], level: float) -> int:
    """How many settings, from the first on, fixed-sequence testing accepts at `level`."""
    return next((i for i, p in enumerate(p_values) if not p <= level), len(p_values))


def _p_value(total: float, count: int, limit: float, binary: bool) -> float:
    """Binary: the binomial tail, which bounds that of unequal chances too where it is small
    (Hoeffding 1956). Else the Hoeffding-Bentkus bound of Learn then Test's proposition 1."""
    if binary:
        return binomial_tail(round(total), count, limit)
    hoeffding = math.exp(-count * _divergence(min(total / count, limit), limit))
    bentkus = math.e * binomial_tail(math.ceil(total), count, limit)
    return min(1.0, hoeffding, bentkus)


def _divergence(low: float, high: float) -> float:
    """Kullback-Leibler divergence of Bernoulli(`low`) from Bernoulli(`high`), in nats."""
    first = low * math.log(low / high) if low > 0 else 0.0
    return first + ((1 - low) * math.log((1 - low) / (1 - high)) if low < 1 else 0.0)


def binomial_tail(successes: int, trials: int, chance: float) -> float:
    """The chance of at most so many successes in independent trials."""
    if successes >= trials:
        return 1.0
    if successes < 0:
        return 0.0
    log_odds = math.log(chance) - math.log1p(-chance)
    term = trials * math.log1p(-chance)
    terms = [term]
    for number in range(successes):
        term += math.log((trials - number) / (number + 1)) + log_odds
        terms.append(term)
    largest = max(terms)
    return min(1.0, math.exp(largest) * math.fsum(math.exp(t - largest) for t in terms))
