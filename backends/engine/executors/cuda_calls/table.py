"""Where the rows of a CUDA call stand: a small table that is copied to the device before each."""

from __future__ import annotations

import numpy as np
import torch

from backends.engine.executors.base import RING, Int32, StepRows, beyond
from backends.engine.executors.trees import MOST_TREE_ROWS

SLOT, POSITION, TOKEN, PLACE, WANTED, START = range(6)
WAYS = 6
"""Where the ways of rows of trees begin."""


class CallTable:
    """Of calls that have so many rows, those without work in a slot of their own.

    Args:
        rows: of every call.
        slots: sequences that the cache holds; the slot behind them takes what is not needed.
        max_len: positions per sequence.
        vocabulary: tokens.
        device: where the table stands.
    """

    def __init__(
        self, rows: int, slots: int, max_len: int, vocabulary: int, device: torch.device
    ) -> None:
        self._rows, self._nowhere = rows, slots * RING
        self._empty = np.zeros((5, rows), np.int32)
        self._empty[SLOT], self._empty[PLACE:] = slots, self._nowhere
        self._limits = np.array([[slots], [max_len], [vocabulary]], np.int32)
        self._table = torch.from_numpy(self._empty).to(device, copy=True)
        self.slots, self.positions, self.tokens, self.places, self.wanted = self._table.unbind(0)
        """Each (rows,) int32: of every row its cache slot, position, token, and place in a boundary
        ring; last the places of the rows whose head is wanted, and of nothing."""

    def send(self, rows: StepRows, start: int, wanted: Int32, *, ends_alone: bool = False) -> int:
        """Copy a call's table to the device. It lies in pageable memory on purpose: the driver has
        read it when the copy returns, so that the next call may come before the device has got
        here.

        Args:
            rows: of which the call takes as many as it has room for.
            start: the first of them.
            wanted: numbers of those whose head is wanted, counted from `start`.
            ends_alone: the others' states are not kept.

        Returns:
            How many rows the call holds.

        Raises:
            EngineError: for a slot, a position or a token that there is not.
        """
        table = self._empty.copy()
        count = min(self._rows, len(rows) - start)
        given = table[:PLACE, :count]
        given[:] = rows.table[:, start : start + count]
        if (given < 0).any() or (given >= self._limits).any():
            raise beyond("cuda executor", rows, self._limits[:, 0].tolist())
        places = given[SLOT] * RING + given[POSITION] % RING
        table[WANTED, : len(wanted)] = places[wanted]
        kept = wanted if ends_alone else slice(count)
        table[PLACE, :count][kept] = places[kept]
        self._table.copy_(torch.from_numpy(table), non_blocking=True)
        return count


class TreeTable:
    """Of calls of rows of trees, those without work in a slot of their own.

    Args:
        rows: of every call.
        slots: sequences that the cache holds; the slot behind them takes what is not needed.
        places: of rows, aside; likewise.
        device: where the table stands.
    """

    def __init__(self, rows: int, slots: int, places: int, device: torch.device) -> None:
        self._rows = rows
        self._empty = np.full((WAYS + MOST_TREE_ROWS, rows), places, np.int32)
        self._empty[SLOT], self._empty[[POSITION, TOKEN, START]] = slots, 0
        self._table = torch.from_numpy(self._empty).to(device, copy=True)
        columns = self._table[:WAYS].unbind(0)
        self.slots, self.positions, self.tokens, self.places, self.wanted, self.starts = columns
        """Each (rows,) int32: of every row its cache slot, position, token and place aside; the
        places of the rows whose head is wanted, and of nothing; of every row the first position of
        its tree."""
        self.ways = self._table[WAYS:]
        """(levels, rows) int32: the places of a row's way, by levels from the first row on."""

    def send(self, rows: StepRows, starts: Int32, ways: Int32, start: int, wanted: Int32) -> None:
        """Copy a call's table to the device, as `CallTable.send` does.

        Args:
            rows: of which the call takes as many as it has room for; their places are their
                numbers.
            starts: (n,), the first position of each row's tree.
            ways: (levels, n), the numbers of the rows on each row's way.
            start: the first of the call's rows.
            wanted: numbers of rows whose head is wanted, no more than there are rows in a call.
        """
        end = min(start + self._rows, len(rows))
        table = self._empty[: WAYS + len(ways)].copy()
        given = table[:, : end - start]
        given[:PLACE], given[PLACE] = rows.table[:, start:end], range(start, end)
        given[START], given[WAYS:] = starts[start:end], ways[:, start:end]
        table[WANTED, : len(wanted)] = wanted
        self._table[: len(table)].copy_(torch.from_numpy(table), non_blocking=True)

    def ask(self, wanted: Int32) -> None:
        """Want the head of other rows of the calls before, no more than there are in a call."""
        table = self._empty[WANTED].copy()
        table[: len(wanted)] = wanted
        self.wanted.copy_(torch.from_numpy(table), non_blocking=True)
