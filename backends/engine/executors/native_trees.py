"""Trees of guesses through the C++ kernels: `executors.trees` on a CPU."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backends.engine.executors.base import Int32
from backends.engine.executors.trees import TreeRows
from backends.engine.model.architecture import Architecture, EngineError
from backends.kernels.cpu import native


class NativeTrees:
    """The `Trees` protocol.

    Args:
        model: what the kernels are given, kept alive by its owner.
        head: the final head, whose scratch serves calls of `most` rows.
        shape: of the model.
        most: rows of a call.
    """

    def __init__(
        self, model: native.CModel, head: native.CHead, shape: Architecture, most: int
    ) -> None:
        self._library: Any = native.library()
        self._at, self._shape, self.most = ctypes.addressof(model), shape, most
        self._limits = model.slots, model.positions, model.vocabulary
        self._head = native.CHead.from_buffer_copy(head)
        number = 4 if model.dtype == 0 else 2
        self._row_bytes = 2 * shape.layers * shape.kv_size * number
        self._last: TreeRows | None = None
        self._parts: list[tuple[int, int]] = []
        self._hidden: NDArray[np.float32] = np.empty((0, shape.width), np.float32)
        self._aside: NDArray[np.uint8] = np.empty((0, self._row_bytes), np.uint8)

    def run(self, trees: TreeRows, wanted: Int32) -> list[int]:
        """See `Trees.run`."""
        self._last, self._parts = trees, list(trees.parts(self.most))
        if len(trees) > len(self._hidden):
            self._hidden = np.empty((len(trees), self._shape.width), np.float32)
            self._aside = np.empty((len(trees), self._row_bytes), np.uint8)
        found: list[int] = []
        for start, end in self._parts:
            here = wanted[(wanted >= start) & (wanted < end)] - np.int32(start)
            tokens = (ctypes.c_int32 * max(1, len(here)))()
            confidences = (ctypes.c_float * max(1, len(here)))()
            head = self._asked(start, here)
            head.tokens = ctypes.addressof(tokens)
            head.confidences = ctypes.addressof(confidences)
            rows = self._described(start, end)
            boundary = self._hidden[start:].ctypes.data
            span = (0, self._shape.layers, None, boundary)
            fits = end - start <= self.most and self._library.advance(
                *(self._at, ctypes.addressof(rows), *span, ctypes.addressof(head))
            )
            if not fits:
                raise EngineError(
                    f"native executor: {end - start} rows of trees: expected at most {self.most} "
                    f"of a slot, preorder, within {self._limits} (slots, positions, tokens)"
                )
            found += tokens[: len(here)]
        return found

    def logits(self, numbers: Int32) -> Tensor:
        """See `Trees.logits`."""
        found = torch.empty(len(numbers), self._head.vocabulary, dtype=torch.float32)
        at = 0
        for start, end in self._parts:
            here = numbers[(numbers >= start) & (numbers < end)] - np.int32(start)
            if not len(here):
                continue
            head, rows = self._asked(start, here), self._described(start, end)
            self._library.head_logits(
                *(self._at, ctypes.addressof(rows), ctypes.addressof(head)), found[at:].data_ptr()
            )
            at += len(here)
        return found

    def keep(self, numbers: Int32) -> None:
        """See `Trees.keep`."""
        if self._last is not None and len(numbers):
            rows = self._described(0, len(self._last))
            self._library.keep_rows(
                self._at, ctypes.addressof(rows), len(numbers), numbers.ctypes.data
            )

    def _asked(self, start: int, numbers: Int32) -> native.CHead:
        """The head for some rows of the part that begins with row `start`."""
        head = self._head
        head.source = self._hidden[start:].ctypes.data
        head.count, head.rows = len(numbers), numbers.ctypes.data
        return head

    def _described(self, start: int, end: int) -> native.CRows:
        assert self._last is not None
        at = self._last.rows.table.ctypes.data + 4 * start
        line = 4 * len(self._last)
        return native.CRows(
            *(end - start, at, at + line, at + 2 * line),
            self._last.back.ctypes.data + 4 * start,
            self._aside[start:].ctypes.data,
            self._shape.layers,
        )
