"""Margins from the log-probabilities that vLLM hands out."""

from __future__ import annotations

import math
from collections.abc import Sequence


def margins(start: int, logprobs: Sequence[Sequence[float]]) -> dict[str, float]:
    """How far the best logit was above the second at the tokens from `start`: `top2_margin@I`.

    A row of `logprobs` is that of the chosen token, then the two best in order. vLLM's raw
    log-probabilities differ from logits by a constant of the position. A margin that is no number
    (weights with NaN, a token ruled out altogether) is left out: JSON could not hold it.
    """
    found = {
        f"top2_margin@{start + n}": float(best) - float(second)
        for n, (_, best, second) in enumerate(logprobs)
    }
    return {name: margin for name, margin in found.items() if math.isfinite(margin)}
