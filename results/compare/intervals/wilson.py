"""The interval of a share."""

from __future__ import annotations

import math
from statistics import NormalDist


def wilson_interval(share: float, count: float, confidence: float = 0.95) -> tuple[float, float]:
    """The score interval of a share that was seen in `count` independent draws (Wilson 1927, J. Am.
    Stat. Assoc. 22:209); it holds at shares of 0 and 1 too. `count` need not be whole: draws that
    depend on each other count for fewer. (0, 1) without draws."""
    if count <= 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + (z / count) ** 2 / 4)
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))
