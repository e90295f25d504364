"""Student's t distribution for degrees of freedom that are no whole number. SciPy is imported where
it computes: `show` of what is kept starts without it."""

from __future__ import annotations


def t_tail(t: float, df: float) -> float:
    """P(T > t) for `df` > 0 degrees of freedom."""
    from scipy.special import stdtr

    return float(stdtr(df, -t))


def t_quantile(p: float, df: float) -> float:
    """The t with P(T > t) = p, for 0 < p < 1."""
    from scipy.special import stdtrit

    return float(-stdtrit(df, p))
