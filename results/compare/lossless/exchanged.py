"""How likely a backend's answers stand apart from those of a reference that is as it is by chance.

A prompt to which all answers of the reference are equal, and all of the other side others, is rare
among exchangeable answers: of the ways to give a prompt's answers to the two sides only those that
part them so. Two answers of the reference and one or two of the other are a third of the ways
at most, and so for each two further answers of the other side, whatever the loads
(permutation test; Pitman 1937).
"""

from __future__ import annotations

import math
from collections.abc import Collection


def p_apart(differing: Collection[tuple[int, int]]) -> float:
    """p of answers that a reference, whose own are all equal, could have given.

    Args:
        differing: (equal pairs, pairs) of each prompt with a pair that differs.

    Returns:
        The chance that so many of these prompts, or more, stand apart altogether.
    """
    apart = [pairs for equal, pairs in differing if not equal]
    chance = max((3.0 ** -((pairs + 1) // 2) for pairs in apart), default=1.0)
    most = len(differing)
    return sum(
        math.comb(most, k) * chance**k * (1 - chance) ** (most - k)
        for k in range(len(apart), most + 1)
    )
