"""Prompts that a reference answered again under the same load, and what they tell of another
backend: how often it is less like the reference than the reference is like itself, and how likely
its answers stand apart by chance.

A prompt to which all answers of the reference are equal, and all of the other side others, is rare
among exchangeable answers: of the ways to give its answers under a load to the two sides only one
parts them so, or two where both have as many (permutation test; Pitman 1937).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NOTHING: Mapping[str, Mapping[str, Any]] = {"differing": {}, "asked": {}}
LEAST_CHANCE = 1 / 9
"""Of one prompt, however often it was answered: repeats of one process may share what decides."""


@dataclass(slots=True)
class PromptAgain:
    """Pairs of one prompt, over the loads under which the reference answered it again."""

    equal: int = 0
    """With the reference."""
    pairs: int = 0
    own_equal: int = 0
    """Of the reference with itself."""
    own_pairs: int = 0
    chance: float = 1.0
    """That equally distributed answers stand apart under every load under which these do."""

    @property
    def is_apart(self) -> bool:
        """Whether no answer is the reference's, whose own are all equal."""
        return self.equal == 0 and self.own_equal == self.own_pairs


def answered_again(
    cells: Sequence[Mapping[str, Any]], own: Iterable[Mapping[str, Any]]
) -> list[PromptAgain]:
    """The prompts that differ anywhere, the same prompt under several loads as one.

    Args:
        cells: a backend's cells, as `results.compare.lossless.cells.in_settings` has them.
        own: those of the reference against itself.
    """
    by_group: dict[Any, Mapping[str, Any]] = {cell["group"]: cell["evidence"] for cell in own}
    found: dict[tuple[str, str], PromptAgain] = {}
    for cell in cells:
        theirs, ours = by_group.get(cell["group"], NOTHING), cell["evidence"]
        for name in {*ours["differing"], *theirs["differing"]}:
            pairs, own_pairs = ours["asked"].get(name, 0), theirs["asked"].get(name, 0)
            if not (pairs and own_pairs):
                continue
            prompt = found.setdefault((cell["checksum"], name), PromptAgain())
            equal = ours["differing"].get(name, (pairs,))[0]
            prompt.equal += equal
            prompt.pairs += pairs
            prompt.own_equal += theirs["differing"].get(name, (own_pairs,))[0]
            prompt.own_pairs += own_pairs
            prompt.chance *= 1.0 if equal else _chance(own_pairs, pairs)
    return list(found.values())


def _chance(own_pairs: int, answers: int) -> float:
    """Of the ways to part answers, those that leave equal ones on the reference's side and none
    beside them. `own_pairs`: at most all of its answers' pairs."""
    own = (1 + math.isqrt(1 + 8 * own_pairs)) // 2
    return (1 + (own == answers)) / math.comb(own + answers, own)


def p_less_consistent(prompts: Iterable[PromptAgain]) -> float:
    """p of a backend that is as consistent as the reference with itself: of the prompts of which
    one has a smaller share of equal answers than the other, as many would go either way (sign
    test). Shares, and not whether all are equal: more pairs of one side than of the other would
    make an unequal one likelier there."""
    shares = [(one.equal * one.own_pairs, one.own_equal * one.pairs) for one in prompts]
    less = sum(ours < own for ours, own in shares)
    return _at_least(less, less + sum(ours > own for ours, own in shares), 0.5)


def p_apart(prompts: Sequence[PromptAgain]) -> float:
    """p that so many of the prompts that differ anywhere, or more, stand apart altogether."""
    apart = [max(one.chance, LEAST_CHANCE) for one in prompts if one.is_apart]
    return _at_least(len(apart), len(prompts), max(apart, default=1.0))


def _at_least(count: int, most: int, chance: float) -> float:
    terms = (
        math.comb(most, k) * chance**k * (1 - chance) ** (most - k) for k in range(count, most + 1)
    )
    return sum(terms)
