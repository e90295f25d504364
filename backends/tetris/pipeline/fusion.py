"""The queue before a stage: survivors are fused to the planned batch, or leave it in time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat

ROUNDING_MS = 1e-6


class FusionQueue:
    """Requests that wait for a stage, first come first served.

    A batch is taken when there are `batch` of them, and before that when the first deadline that
    can still be met leaves no more than `ahead_ms`: the times of this stage and of those behind it;
    or when the first has waited `wait_ms`. A deadline that is past hurries nobody: what is late
    already would only break up the batches of the others. Times and deadlines are milliseconds of
    one clock.
    """

    def __init__(self, batch: int, ahead_ms: float, wait_ms: float = math.inf) -> None:
        self._batch, self._ahead_ms, self._wait_ms = batch, ahead_ms, wait_ms
        self.waiting: deque[int] = deque()
        """Who waits, in order; for others to read."""
        self._latest: deque[float] = deque()
        self._patience: deque[float] = deque()
        """When each has waited long enough; empty where everybody may wait for ever."""
        self.flush_ms = math.inf
        """When the next flush is due; infinite when nobody's deadline can be met any more, and
        everybody may wait for ever."""

    def __len__(self) -> int:
        return len(self.waiting)

    def push(self, requests: Sequence[int], deadlines: Iterable[float], now_ms: float) -> None:
        """Requests that arrive now, in order, each with its deadline."""
        latest = [deadline - self._ahead_ms for deadline in deadlines]
        self.waiting.extend(requests)
        self._latest.extend(latest)
        if self._wait_ms < math.inf:
            self._patience.extend(repeat(now_ms + self._wait_ms, len(requests)))
        self._hurry(latest, now_ms)

    def ready(self, now_ms: float) -> bool:
        """Whether a batch is to be taken as soon as a device is free. Once a flush was due it stays
        so, whether or not a device was free at that moment."""
        return len(self.waiting) >= self._batch or now_ms >= self.flush_ms - ROUNDING_MS

    def take(self, now_ms: float) -> list[int]:
        """Up to a batch of requests; whoever calls it has asked `ready` or has nothing to wait
        for."""
        if len(self.waiting) <= self._batch:
            return self.remove_all()
        taken = [self.waiting.popleft() for _ in range(self._batch)]
        for _ in taken:
            self._latest.popleft()
            if self._patience:
                self._patience.popleft()
        if len(self._latest) < self._batch:
            self.flush_ms = math.inf
            self._hurry(self._latest, now_ms)
        else:
            self.flush_ms = self._latest[0]
        return taken

    def remove_all(self) -> list[int]:
        """Everybody, in order."""
        found = list(self.waiting)
        self.waiting.clear()
        self._latest.clear()
        self._patience.clear()
        self.flush_ms = math.inf
        return found

    def _hurry(self, latest: Iterable[float], now_ms: float) -> None:
        """Flush for who has waited longest, and for those of `latest` that can still be met."""
        flush_ms, now_ms = self.flush_ms, now_ms - ROUNDING_MS
        if self._patience:
            flush_ms = min(flush_ms, self._patience[0])
        for at in latest:
            if now_ms <= at < flush_ms:
                flush_ms = at
        self.flush_ms = flush_ms
