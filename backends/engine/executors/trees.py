"""Rows that branch: several guesses for one position, run in one call and kept or forgotten after.

A tree begins with a token that the cache does not hold yet and whose predecessors it holds all. A
row attends to these, to the rows on its way from the first, and to itself, so that whatever way the
text takes, the numbers on it are those that plain decoding computes, bit for bit. Windows of
LookAhead decoding are such trees too: the first level is a trunk, each column a branch of it.

Attention masks over scattered cells (as in Miao et al., 2024, SpecInfer, section 4.2) would sum the
same numbers at other places and round otherwise; an executor of these trees must not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np

from backends.engine.executors.base import Int32, StepRows

if TYPE_CHECKING:
    from torch import Tensor

MOST_TREE_ROWS = 256
"""Rows that a tree may have on every executor that runs trees."""


@dataclass(frozen=True, slots=True)
class TreeRows:
    """Trees of one or more slots, the rows of each next to one another and in preorder: what
    descends from a row follows it at once."""

    rows: StepRows
    """A row's position is that of the row it follows, plus 1."""
    back: Int32
    """(n,) how many rows before it the row stands that it follows; 0 for the first of a slot."""

    def __len__(self) -> int:
        return len(self.back)

    @classmethod
    def joined(cls, trees: Sequence[tuple[int, int, Sequence[int], Sequence[int]]]) -> TreeRows:
        """Of trees in (slot, first position, tokens, back) form; back as in the class."""
        slots: list[int] = []
        positions: list[int] = []
        tokens: list[int] = []
        backs: list[int] = []
        for slot, start, ids, back in trees:
            at = len(positions)
            slots += [slot] * len(ids)
            positions.append(start)
            for row, steps in enumerate(back[1:], at + 1):
                positions.append(positions[row - steps] + 1)
            tokens += ids
            backs += back
        return cls(StepRows(slots, positions, tokens), np.array(backs, np.int32))

    def parts(self, most: int) -> Iterator[tuple[int, int]]:
        """First and end of parts of at most so many rows, no tree in two of them; a larger tree is
        a part by itself."""
        slots = self.rows.slots
        starts = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(self)]
        begin = 0
        for start, end in pairwise(starts):
            if end - begin > most and start > begin:
                yield begin, start
                begin = start
        if len(self):
            yield begin, len(self)


def widest(slots: int, rows: int) -> TreeRows:
    """A tree of so many rows in each slot, as wide as it may be, at its beginning: it reads nothing
    of the cache. For what is made when trees first come: graphs, and memory for so many."""
    return TreeRows.joined([(slot, 0, [0] * rows, list(range(rows))) for slot in range(slots)])


class Trees(Protocol):
    """What an executor without exits does with trees. What a call left is there until the next."""

    most: int
    """Rows of the largest tree, `MOST_TREE_ROWS` at least."""

    def run(self, trees: TreeRows, wanted: Int32) -> list[int]:
        """Run all layers over the rows. The cache keeps what it holds before the trees; K and V of
        their rows are set aside.

        Returns:
            The most probable next tokens after the rows whose numbers are `wanted` (ascending); -1
            where the logits are NaN.

        Raises:
            EngineError: for rows that are no trees in preorder, or beyond the model.
        """

    def logits(self, numbers: Int32) -> Tensor:
        """(n, vocabulary) float32: the final head's logits of rows of the last call; on the CPU
        unless kernels draw on the device."""

    def keep(self, numbers: Int32) -> None:
        """K and V of rows of the last call go into the cache at their positions; what is neither
        kept nor written later is not to be attended to."""


def check_preorder(trees: TreeRows, limits: tuple[int, int, int]) -> None:
    """Raise `EngineError` for rows that are no trees in preorder, or not below `limits` (slots,
    positions, tokens)."""
    from backends.engine.model.architecture import EngineError

    slots, positions = trees.rows.slots.tolist(), trees.rows.positions.tolist()
    table, way = trees.rows.table, list[int]()
    fits = bool((table >= 0).all() and (table < np.array(limits)[:, None]).all())
    for row, steps in enumerate(trees.back.tolist()):
        begins = row == 0 or slots[row] != slots[row - 1]
        if begins:
            way.clear()
        while way and way[-1] != row - steps:
            way.pop()
        follows = bool(way) and positions[row] == positions[row - steps] + 1
        fits = fits and (steps == 0 if begins else follows)
        way.append(row)
    if not fits:
        raise EngineError(
            f"trees of {len(trees)} rows: expected preorder, within {limits} (slots, positions, "
            "tokens)"
        )
