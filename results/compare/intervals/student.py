"""Student's t distribution for degrees of freedom that are no whole number."""

from __future__ import annotations

import math

_ITERATIONS = 500
_ENOUGH = 1e-15
_TINY = 1e-300


def t_tail(t: float, df: float) -> float:
    """P(T > t) for `df` > 0 degrees of freedom: half the regularised incomplete beta function
    I_x(df/2, 1/2) at x = df / (df + t^2) (Abramowitz and Stegun 1964, 26.7.1)."""
    tail = 0.5 * _incomplete_beta(df / (df + t * t), df / 2, 0.5)
    return tail if t >= 0 else 1 - tail


def t_quantile(p: float, df: float) -> float:
    """The t with P(T > t) = p, for 0 < p <= 0.5. Newton's method on log P against log t, which are
    nearly in line where df is small, the hard case."""
    if p == 0.5:
        return 0.0
    t, log_p = max(0.01, math.sqrt(-2 * math.log(2 * p))), math.log(p)
    for _ in range(_ITERATIONS):
        tail = t_tail(t, df)
        step = (math.log(tail) - log_p) * tail / (_density(t, df) * t)
        t *= math.exp(max(-2.0, min(2.0, step)))
        if abs(step) < 1e-10:
            break
    return t


def _density(t: float, df: float) -> float:
    scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    return math.exp(scale - (df + 1) / 2 * math.log1p(t * t / df))


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b), by the side whose continued fraction converges."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(front + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of I_x(a, b) (Abramowitz and Stegun 26.5.8) by Lentz's method (1976,
    Applied Optics 15:668): the ratios of numerators and of denominators are carried along."""
    value = denominator = 1 / _not_zero(1 - (a + b) * x / (a + 1))
    numerator = 1.0
    for m in range(1, _ITERATIONS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            denominator = 1 / _not_zero(1 + term * denominator)
            numerator = _not_zero(1 + term / numerator)
            value *= denominator * numerator
        if abs(denominator * numerator - 1) < _ENOUGH:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
