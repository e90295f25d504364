"""Whether trees of guesses are worth their rows, from what passes cost and what has been accepted.

All or nothing, unlike `drafters.adaptive`: a window that is not computed brings no n-grams either.
The goodput of both is compared (Liu et al., 2024, arXiv 2406.14066, with 0 drafts or all). While
the step goes without, a few verifications now and then show whether it has become worth while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from backends.engine.drafters.trees.base import Guesses, TreeDrafter
from backends.engine.streams import Stream

MEMORY = 0.97
"""What a verification's evidence is worth at the next."""
PRIOR = 8.0
"""Verifications that a belief is worth."""
REFRESHED = 16
"""Steps between two choices for the same number of streams."""
BURST = 12
"""Steps of a trial: enough for a window to fill, and for its n-grams to come back."""
PAUSES = 128, 2048
"""Steps without guesses before the first trial, doubled for each to at most so many."""


class TreeCosts(Protocol):
    """What a method's steps cost."""

    def of(self, sequences: int, positions: int, rows: float) -> tuple[float, float]:
        """Microseconds of a plain step, and of one with trees.

        Args:
            sequences: that are under way.
            positions: theirs together.
            rows: of each one's tree.
        """


class AdaptiveTrees:
    """A `TreeDrafter` that lets another one draft or not.

    Args:
        drafter: makes the trees.
        costs: of its steps.
        rows: of a tree, as is supposed before there were any.
        hope: tokens of a verification, likewise.
    """

    def __init__(self, drafter: TreeDrafter, costs: TreeCosts, rows: float, hope: float) -> None:
        self._drafter, self._costs = drafter, costs
        self.exits, self.max_drafts = drafter.exits, drafter.max_drafts
        self._supposed = rows, hope
        self._asked: set[int] = set()
        """Slots with a tree that waits for its verification."""
        self._forget_evidence()

    def grow(self, streams: Sequence[Stream]) -> Sequence[Guesses]:
        """The other's trees, or none."""
        self._steps += 1
        if self._steps % REFRESHED == 0:
            self._chosen.clear()
        if not self._tries(streams):
            return []
        grown = self._drafter.grow(streams)
        for stream, guesses in zip(streams, grown, strict=True):
            self._asked.add(stream.slot)
            self._rows.add(len(guesses.tokens))
        return grown

    def told(self, stream: Stream, tokens: Sequence[int]) -> None:
        """To the other."""
        self._drafter.told(stream, tokens)

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        """Take note of what stood; the drafter's own counts."""
        if stream.slot in self._asked:
            self._asked.remove(stream.slot)
            self._tokens.add(accepted + 1)
        return self._drafter.verified(stream, accepted)

    def reset(self) -> None:
        """Forget every stream, and what they showed: a trial knows nothing of the one before."""
        self._drafter.reset()
        self._forget_evidence()

    def _forget_evidence(self) -> None:
        rows, hope = self._supposed
        self._rows, self._tokens = _Mean(rows), _Mean(hope)
        self._chosen: dict[int, bool] = {}
        """By number of streams, for some steps."""
        self._asked.clear()
        self._steps = self._since = self._burst = 0
        self._pause = PAUSES[0]

    def _tries(self, streams: Sequence[Stream]) -> bool:
        """Whether this step has guesses."""
        if self._burst:
            self._burst -= 1
            if not self._burst:
                self._chosen.clear()
            return True
        count = len(streams)
        pays = self._chosen.get(count)
        if pays is None:
            pays = self._chosen[count] = self._pays(streams, self._tokens.value)
        if pays:
            self._since, self._pause = 0, PAUSES[0]
            return True
        self._since += 1
        if self._since < self._pause:
            return False
        self._since, self._pause = 0, min(2 * self._pause, PAUSES[1])
        # where not even guesses that all stood would pay there is nothing to be learnt
        if not self._pays(streams, self.max_drafts + 1):
            return False
        self._burst = BURST - 1
        return True

    def _pays(self, streams: Sequence[Stream], tokens: float) -> bool:
        positions = sum(len(stream.tokens) for stream in streams)
        plain, trees = self._costs.of(len(streams), positions, self._rows.value)
        return tokens / trees > 1 / plain


class _Mean:
    """A mean, of which the latest cases count most."""

    def __init__(self, belief: float) -> None:
        self._cases, self._sum = PRIOR, PRIOR * belief

    def add(self, value: float) -> None:
        """One more."""
        self._cases, self._sum = self._cases * MEMORY + 1, self._sum * MEMORY + value

    @property
    def value(self) -> float:
        return self._sum / self._cases
