"""Images as texts: lines of pixels, each two hexadecimal digits, black 00 to white ff."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from harness.core.errors import UserError

SIDE = 16
"""Pixels of an image's width and height."""
_LINE = re.compile(rf"[0-9a-f]{{2}}(?: [0-9a-f]{{2}}){{{SIDE - 1}}}")


def to_text(pixels: Sequence[Sequence[int]]) -> str:
    """An image of numbers from 0 to 255 as text."""
    return "\n".join(" ".join(f"{value:02x}" for value in line) for line in pixels)


def check(text: str, where: str) -> None:
    """Raise `UserError`, which begins with `where`, for a text that is no image."""
    lines = text.split("\n")
    wrong = next((n for n, line in enumerate(lines, 1) if not _LINE.fullmatch(line)), None)
    if wrong is not None:
        raise UserError(
            f"{where}: line {wrong}: expected {SIDE} pixels such as 'ff', got "
            f"{lines[wrong - 1][:24]!r}"
        )
    if len(lines) != SIDE:
        raise UserError(f"{where}: expected {SIDE} lines of pixels, got {len(lines)}")


def to_pixels(text: str) -> list[list[int]]:
    """The numbers of an image that passed `check`."""
    return [[int(pixel, 16) for pixel in line.split()] for line in text.split("\n")]


def roughness(text: str) -> float:
    """The mean difference of neighbouring pixels over their spread: low where one shape stands out
    from a plain ground, above 1 where noise hides it. 0 for an image of one grey."""
    lines = to_pixels(text)
    values = [value for line in lines for value in line]
    mean = sum(values) / len(values)
    spread = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
    columns = zip(*lines, strict=True)
    pairs = (pair for line in (*lines, *columns) for pair in pairwise(line))
    steps = [abs(before - after) for before, after in pairs]
    return sum(steps) / len(steps) / spread if spread else 0.0
