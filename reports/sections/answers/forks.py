"""Two answers side by side where they part, token by token."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reports.text import shortened, visible

Pieces = Callable[[int], str | None]
"""Token id -> its text."""
_BEFORE, _AFTER = 3, 5
"""Tokens that are shown before a fork, and from it on."""
_LONGEST = 14
"""Characters of a token that are shown."""


def side_by_side(
    base: np.ndarray,
    own: np.ndarray,
    fork: int,
    piece: Pieces | None = None,
    whose: str = "reference",
) -> str:
    """Three lines of equal columns about a fork: place, the tokens of `whose` answer, this one's
    (ids, where nobody knows what they stand for); a bar stands before the first that differ."""
    first = max(0, fork - _BEFORE)
    end = min(max(len(base), len(own)), fork + _AFTER)
    lines = [["token"], [whose], ["here"]]
    for place in range(first, end):
        if place == fork:
            for line in lines:
                line.append("|")
        lines[0].append(str(place))
        for line, tokens in zip(lines[1:], (base, own), strict=True):
            line.append(_token(int(tokens[place]), piece) if place < len(tokens) else "end")
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True))
        for line in lines
    )


def _token(token: int, piece: Pieces | None) -> str:
    text = None if piece is None else piece(token)
    return str(token) if text is None else visible(shortened(text, _LONGEST))
