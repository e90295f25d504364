"""Which node of a cluster runs which trials: whole comparisons, so that what is compared ran on one
machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from harness.core.nouns import Trial, canonical_json, to_json

Comparison = tuple[Trial, ...]
"""All trials of a model, a workload and a load: every engine, every repeat."""
ROUNDS = 2
"""A node takes a part of what is left, one of so many times the nodes: large parts first, so that
engines stay loaded, and single comparisons at the end, so that no node waits long for another."""


def comparisons(trials: Sequence[Trial]) -> list[Comparison]:
    """The trials by comparison, in their order."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        alike = replace(trial, backend="", options={}, repeat=0)
        found.setdefault(canonical_json(to_json(alike)), []).append(trial)
    return [tuple(same) for same in found.values()]


class NodeShares:
    """What is still to be run.

    Args:
        found: all comparisons.
        nodes: how many nodes there are.
    """

    def __init__(self, found: Sequence[Comparison], nodes: int) -> None:
        self._left, self._nodes = list(found), nodes

    def __bool__(self) -> bool:
        return bool(self._left)

    def take(self, stored: Callable[[Comparison], int]) -> list[Comparison]:
        """A share for one node.

        Args:
            stored: how many trials of a comparison were run on such a node before; those that it
                has begun come first.
        """
        count = math.ceil(len(self._left) / (ROUNDS * self._nodes))
        begun = sorted(self._left, key=lambda one: -stored(one))[:count]
        chosen = {id(one) for one in begun}
        taken = [one for one in self._left if id(one) in chosen]
        self._left = [one for one in self._left if id(one) not in chosen]
        return taken

    def give_back(self, lost: Sequence[Comparison]) -> None:
        """A node is gone: others run what it had."""
        self._left = [*lost, *self._left]
        self._nodes = max(self._nodes - 1, 1)


def kept(
    share: Sequence[Comparison],
    stored: Collection[str],
    ended: Collection[str],
    key: Callable[[Trial], str],
) -> set[str]:
    """The keys of a share's trials that need not run again: of those that are `stored` the ones of
    a repeat that is whole, or of which all have `ended` on this node, well or not. A repeat that
    another node began, though it be of the same kind, is run anew on one."""
    found: set[str] = set()
    for one in share:
        for repeat in {trial.repeat for trial in one}:
            keys = {key(trial) for trial in one if trial.repeat == repeat}
            if keys <= set(stored) or keys <= set(ended):
                found |= keys & set(stored)
    return found
