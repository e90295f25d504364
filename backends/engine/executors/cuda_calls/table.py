"""Where the rows of a CUDA call stand: a small table that is copied to the device before each."""

from __future__ import annotations

import numpy as np
import torch

from backends.engine.executors.base import RING, Int32, StepRows, beyond

SLOT, POSITION, TOKEN, PLACE, WANTED = range(5)


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
