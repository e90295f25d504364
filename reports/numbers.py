"""Numbers as people read them: few digits, the same for equal values everywhere in the report."""

from __future__ import annotations

import math
from collections.abc import Callable

from harness.core.nouns import SAYS_NOTHING


def significant(value: float, digits: int = 3) -> str:
    """Plain decimal with so many significant digits and grouped thousands: 1,234, 85.1, 0.0123."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "∞"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    if places <= 0:
        return f"{value:,.0f}"
    rounded = round(value, places)
    if rounded and math.floor(math.log10(abs(rounded))) > math.floor(math.log10(abs(value))):
        places -= 1
    return f"{rounded:,.{max(places, 0)}f}"


def milliseconds(seconds: float) -> str:
    """Seconds shown in milliseconds with three significant digits."""
    return significant(seconds * 1000)


def ratio(value: float) -> str:
    """A speed-up: two decimals, three below 0.1, none from 100 on."""
    if value < 0.1:
        return significant(value, 2)
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def percent(share: float) -> str:
    """A share as a percentage; anything short of all or more than nothing never rounds to it."""
    if share == 0 or share >= 1:
        return f"{share * 100:.0f}"
    return f"{min(max(share * 100, 0.1), 99.9):.1f}"


def interval(low: float, high: float, form: Callable[[float], str] = ratio) -> str:
    """``[1.28, 1.35]`` in the format of the number it belongs to; a ratio's that leaves everything
    open has no digits."""
    if form is ratio and high > low * SAYS_NOTHING:
        return "[0, ∞]"
    return f"[{form(low)}, {form(high)}]"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """``1 trial``, ``12 trials``, ``2 repeats``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
