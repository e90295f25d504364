"""Queues before the segments of a network on one device, and which segment runs next.

*Shrinking*: a batch goes through alone and gets smaller on the way (DeeBERT's exits, by input).
*Together*: it leaves once each of its inputs has been sure (the early-exit paper's batch rule).
*Regrouped*: survivors wait and are fused with later ones to whole batches, as TETRIS's stages do,
in turns on one device (DREX, arXiv 2512.15705).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from backends.classifiers.flight import InputInFlight
from backends.classifiers.models.base import RampedClassifier
from backends.classifiers.options import REGROUPED, TOGETHER
from backends.classifiers.spans import run_span
from backends.tetris.ramps.wrapper import ExitWrapper


class SegmentedClassifier:
    """A network in segments on one device.

    Args:
        model: the network.
        wrapper: who leaves where.
        cuts: numbers of layers behind which a segment ends, ascending; the last ends the model.
        batching: one of `options.BATCHINGS`.
        batch: inputs of a batch, at most.
        patience_ms: of `REGROUPED`: an input that has waited so long goes before whole batches.
    """

    def __init__(
        self,
        model: RampedClassifier,
        wrapper: ExitWrapper,
        cuts: Sequence[int],
        *,
        batching: str,
        batch: int,
        patience_ms: float,
    ) -> None:
        self.model, self._wrapper = model, wrapper
        self._spans = list(zip((0, *cuts), (*cuts, model.depth), strict=True))
        self._batching, self._batch = batching, batch
        self._patience_ns = int(patience_ms * 1e6)
        self.clear()

    def clear(self) -> None:
        """Forget every input."""
        self._queues: list[deque[InputInFlight]] = [deque() for _ in self._spans]

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def add(self, one: InputInFlight) -> None:
        """An input before the first layer."""
        self._push(0, [one])

    def step(self) -> list[InputInFlight]:
        """Run one segment for one batch: those who are done."""
        number = self._next()
        queue = self._queues[number]
        inputs = [queue.popleft() for _ in range(min(self._batch, len(queue)))]
        first, last = self._spans[number]
        run_span(self.model, self._wrapper, inputs, first, last)
        if last == self.model.depth:
            return inputs
        gone = [one for one in inputs if self._wrapper.leaves(last, one.memory)]
        if self._batching == TOGETHER and len(gone) < len(inputs):
            gone = []
        left = {id(one) for one in gone}
        self._push(number + 1, [one for one in inputs if id(one) not in left])
        return gone

    def _next(self) -> int:
        """The segment to run: of one batch at a time its own; else the one whose input has lost
        its patience, the deepest that a whole batch waits for, the entrance, the deepest."""
        waiting = [number for number, queue in enumerate(self._queues) if queue]
        if self._batching != REGROUPED:
            return waiting[-1]
        oldest = min(waiting, key=lambda number: self._queues[number][0].waiting_since_ns)
        waited = time.monotonic_ns() - self._queues[oldest][0].waiting_since_ns
        if waited > self._patience_ns:
            return oldest
        whole = [number for number in waiting if len(self._queues[number]) >= self._batch]
        if whole:
            return whole[-1]
        return 0 if self._queues[0] else waiting[-1]

    def _push(self, number: int, inputs: Sequence[InputInFlight]) -> None:
        now = time.monotonic_ns()
        for one in inputs:
            one.waiting_since_ns = now
        self._queues[number].extend(inputs)
