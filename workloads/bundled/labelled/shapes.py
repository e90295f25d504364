"""Drawings of one shape each, 16 x 16 grey pixels, with more or less noise over them.

Easy ones are large and stand out from the ground; hard ones are small, pale, noisy, and have lines
across them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from workloads.bundled.draw import Draw
from workloads.bundled.splits import Subject
from workloads.labelled import LABELS
from workloads.labelled.images import SIDE, to_text

TURNS = 12
"""Angles that a shape may have."""


def drawing(draw: Draw) -> tuple[Subject, dict[str, str]]:
    """Return a drawn row and what it is about."""
    label, hard = draw.choose(LABELS["shapes"]), draw.chance(0.5)
    size = draw.integer(8, 10) / 2 if hard else draw.integer(10, 13) / 2
    free = int(2 * (SIDE / 2 - 1 - size))
    middle = [SIDE / 2 + draw.integer(-free, free) / 4 for _ in "xy"]
    turn = draw.integer(0, TURNS - 1)
    form = f"{label} {size} {middle} {turn}"
    contrast = draw.integer(45, 80) if hard else draw.integer(110, 200)
    noise = draw.integer(18, 36) if hard else draw.integer(2, 12)
    if draw.chance(0.5):
        contrast = -contrast
    ground = 128 - contrast // 2 + draw.integer(-12, 12)
    lines = [(draw.integer(0, SIDE - 1), draw.chance(0.5)) for _ in range(hard)]
    angle = 2 * math.pi * turn / TURNS
    cosine, sine, inside = math.cos(angle), math.sin(angle), INSIDE[label]
    pixels = []
    for y in range(SIDE):
        row = []
        for x in range(SIDE):
            dx, dy = x + 0.5 - middle[0], y + 0.5 - middle[1]
            u, v = (dx * cosine + dy * sine) / size, (dy * cosine - dx * sine) / size
            value = ground + contrast * inside(u, v)
            if any((x if upright else y) == at for at, upright in lines):
                value = ground + contrast // 2
            row.append(min(max(round(value + _wobble(draw, noise)), 0), 255))
        pixels.append(row)
    row_id = draw.hexadecimal(16)
    data = {"id": row_id, "image": to_text(pixels), "label": label}
    return Subject(f"{form} {contrast} {noise} {row_id}", form), data


def _wobble(draw: Draw, deviation: int) -> float:
    """About normal: the sum of three even draws, from -3 to 3 deviations."""
    return deviation * sum(draw.integer(-1000, 1000) for _ in range(3)) / 1000


def _between(low: float, value: float, high: float) -> bool:
    return low <= value <= high


INSIDE: dict[str, Callable[[float, float], bool]] = {
    "disc": lambda u, v: math.hypot(u, v) < 0.95,
    "ring": lambda u, v: _between(0.55, math.hypot(u, v), 1.0),
    "square": lambda u, v: max(abs(u), abs(v)) < 0.8,
    "frame": lambda u, v: _between(0.45, max(abs(u), abs(v)), 0.85),
    "triangle": lambda u, v: _between(-0.6, v, 1.0) and abs(u) < (1.0 - v) * 0.6,
    "cross": lambda u, v: min(abs(u), abs(v)) < 0.22 and max(abs(u), abs(v)) < 1.0,
    "tee": lambda u, v: (
        (abs(u) < 0.22 and abs(v) < 1.0) or (_between(-1.0, v, -0.6) and abs(u) < 0.8)
    ),
    "stripes": lambda u, v: abs(u) < 0.9 and (_between(0.3, abs(v), 0.75)),
}
"""By label, whether a point is in the shape of size 1."""
