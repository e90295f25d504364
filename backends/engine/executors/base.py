"""What the decoder asks of the code that runs the layers, on whatever device.

An executor holds the weights, the KV cache and one boundary buffer before each segment and after
the last. The exits cut the layers into segments: exits (2, 4) of 8 layers give [0, 2), [2, 4) and
[4, 8). A boundary buffer keeps the hidden states of the last `RING` positions of each cache slot,
position p in row ``p % RING``, so that work left undone after an exit waits there.

A row's numbers never depend on the other rows of a call, on their number, or on its place among
them: losslessness rests on that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from backends.engine.draws import Draws
    from backends.engine.executors.trees import Trees
    from backends.engine.model.architecture import Architecture
    from backends.engine.sublayers.sets import Sublayers

RING = 16
"""Positions of a slot that a boundary buffer holds; pending rows never number more."""

Int32 = NDArray[np.int32]
Own = TypeVar("Own")


class StepRows:
    """Positions to be computed, one row each.

    The rows of one slot are consecutive positions in ascending order, next to one another.
    """

    __slots__ = ("table",)

    def __init__(self, slots: ArrayLike, positions: ArrayLike, tokens: ArrayLike) -> None:
        self.table: Int32 = np.array((slots, positions, tokens), np.int32)
        """(3, n), contiguous: slots, positions, tokens."""

    def __len__(self) -> int:
        return len(self.table[0])

    @property
    def slots(self) -> Int32:
        """(n,) cache slot."""
        return self._column(0)

    @property
    def positions(self) -> Int32:
        """(n,) place in the sequence, 0 for the first prompt token."""
        return self._column(1)

    @property
    def tokens(self) -> Int32:
        """(n,) token id at that place; only segment 0 reads it."""
        return self._column(2)

    def _column(self, number: int) -> Int32:
        column: Int32 = self.table[number]
        return column

    def spans(self) -> Iterator[tuple[int, int, Int32]]:
        """By slot: its number, its first position, and the tokens from there on."""
        slots, first = self.slots, 0
        for end in [*(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(self)]:
            yield int(slots[first]), int(self.positions[first]), self.tokens[first:end]
            first = end

    @classmethod
    def span(cls, slot: int, start: int, tokens: Sequence[int]) -> StepRows:
        """Consecutive positions of one slot, from `start` on."""
        return cls([slot] * len(tokens), range(start, start + len(tokens)), tokens)

    @classmethod
    def joined(cls, parts: Sequence[StepRows]) -> StepRows:
        """One behind the other."""
        return cls(*np.concatenate([part.table for part in parts], 1))

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int]]) -> StepRows:
        """From (slot, position, token) triples."""
        return cls(*zip(*rows, strict=True)) if rows else cls((), (), ())


def check_prompts(rows: StepRows, max_len: int) -> None:
    """Raise `EngineError` for no rows, and for a position that a slot does not have."""
    from backends.engine.model.architecture import EngineError

    count = int(rows.positions.max()) + 1 if len(rows) else 0
    if not 1 <= count <= max_len:
        raise EngineError(f"prompt of {count} tokens: expected 1 to {max_len}")


def beyond(what: str, rows: StepRows, limits: Sequence[int]) -> Exception:
    """The `EngineError` of rows that leave the slots, positions or tokens there are."""
    from backends.engine.model.architecture import EngineError

    return EngineError(
        f"{what}: rows {rows.table.T.tolist()} (slot, position, token), or what continues them, go "
        f"beyond {list(limits)}"
    )


def check_boundary(index: int, exits: Sequence[int]) -> None:
    """Raise `EngineError` for a boundary at which no position can leave."""
    from backends.engine.model.architecture import EngineError

    if not 1 <= index <= len(exits):
        raise EngineError(f"fill from boundary {index}: expected 1 to {len(exits)}, the exits")


def unwatched(executor: Own) -> Own:
    """A copy that shares all it has, but for methods that were replaced in the one object."""
    kind = type(executor)
    copy = object.__new__(kind)
    for name, value in vars(executor).items():
        if not callable(getattr(kind, name, None)):
            setattr(copy, name, value)
    return copy


class Executor(Protocol):
    """Runs the segments of one model. Not safe for use from two threads."""

    architecture: Architecture
    exits: tuple[int, ...]
    """Layers after which there is an exit head, ascending."""
    slots: int
    max_len: int
    """Positions per slot."""
    device: str
    kernels: str
    """What computes: "native-amx", "torch", "triton", ..."""

    piece: int
    """Where a prompt may be cut: after every so many of its tokens, and nowhere else. So the
    numbers of a position depend on its own prompt alone, however much is read at a time."""

    @property
    def trees(self) -> Trees | None:
        """What runs several guesses for one position; None where nothing here does."""

    def read(self, rows: StepRows) -> None:
        """Run positions of prompts, of any number of slots, through all layers: K and V go into the
        cache, the hidden state of each slot's last row into the last boundary. All positions
        before a row in its slot have been read, or are in the same call."""

    def prefill(self, slot: int, token_ids: Sequence[int]) -> None:
        """`read` a whole prompt, of 1 to `max_len` tokens."""

    def segment(self, index: int, rows: StepRows) -> None:
        """Run segment `index`: from boundary `index` (segment 0: from the tokens' embeddings) to
        boundary `index + 1`. Writes the K and V of its layers at the rows' positions; a row attends
        to all positions of its slot up to its own."""

    def fill(self, index: int, rows: StepRows) -> None:
        """Positions that left before segment `index` (at least 1): write the K and V that each
        layer from there on computes of the hidden state that waits in boundary `index`, and nothing
        else. Earlier positions of a slot have been filled or computed before. The state copy of
        "Confident Adaptive Language Modeling" (Schuster et al., 2022, section 3.1)."""

    def exit_head(self, index: int, rows: StepRows) -> tuple[list[int], list[float]]:
        """The most probable next token after segment `index` and its probability, per row; from a
        head with `margin` how far that is above the second's. Token -1 where the logits are NaN,
        which passes no threshold: whoever emits it raises."""

    def greedy(self, rows: StepRows) -> list[int]:
        """The most probable next token after the last layer, per row; the lowest id wins a tie."""

    def advance(self, index: int, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        """`segment`, then its head on the rows whose numbers are `wanted` (ascending, may be
        empty): the exit head's tokens and probabilities, after the last segment the final head's.
        One call, since a call costs as much as a layer of a small model."""

    def whole(self, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        """All segments, as `segment` runs them, and the final head on the rows whose numbers are
        `wanted` (ascending). The boundaries between segments are not written where that is
        quicker: no row of them can be gone on with."""

    def continued(
        self,
        rows: StepRows,
        wanted: Int32,
        most: Int32,
        threshold: float,
        stops: Int32,
        draws: Draws | None = None,
    ) -> list[list[int]]:
        """Of a model without exits: `advance`, then decoding after each of the rows whose numbers
        are `wanted`, the last ones of their slots. `continue_by_steps` says what it does;
        where calls are dear it is one."""

    def logits(self, rows: StepRows, index: int = -1) -> Tensor:
        """(n, vocabulary) float32, on the CPU unless kernels draw on the device: the logits after
        segment `index`, the last one unless told otherwise; an exit head's with a shortlist are
        those of its tokens."""

    def boundary(self, index: int) -> Tensor:
        """(at least slots, RING, width): the hidden states in boundary `index`, from 1 on, in the
        executor's own memory; position p in row ``p % RING``."""

    def skipping(self, left_out: Sublayers) -> Executor:
        """The same model without some sublayers: weights, cache and boundaries are these. A row
        passes what is left out unchanged: nothing is written to the cache there, and nothing read.
        `read` runs all layers all the same. It lives as long as this executor does, and a watch on
        this one's methods does not see it. Raises `EngineError` for a set that the model has not
        got, and for all of its sublayers."""

    def release(self, slot: int, length: int) -> None:
        """The sequence in a slot is over, after about so many positions: what it filled of the
        cache may be given back."""

    def close(self) -> None:
        """Free the device's memory."""


class KeepsStates(Executor, Protocol):
    """An executor that can hand out what its layers compute."""

    def keep_states(self, layers: Sequence[int]) -> Tensor:
        """From now on every pass of `read`, `segment` and `advance` leaves the hidden states after
        so many layers (0: the embeddings) at the places of its rows.

        Returns:
            (at least slots, max_len, len(layers), width) in the residual stream's dtype, on the
            executor's device: by slot and position. What no pass has reached is zero.
        """
