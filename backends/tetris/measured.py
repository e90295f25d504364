"""A profile measured here: what the layers of a model cost on our engine, by rows."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from backends.engine.costs.waiting import wait_for_device
from backends.engine.executors.base import Executor, StepRows
from backends.engine.passes import depths

CONTEXT = 128
"""Positions before the one that is timed."""
POSITIONS = CONTEXT + 1
"""What a sequence needs."""
RUNS, FEWEST, WARM_UP, ENOUGH_S = 25, 5, 3, 3.0


def costs(
    executor: Executor, batches: Sequence[int], progress: Callable[[int], None]
) -> dict[str, Any]:
    """Milliseconds at each batch: a row of each of so many sequences, `CONTEXT` positions long.

    Args:
        executor: with at least one exit and a slot for every sequence; its cache is overwritten.
        batches: ascending; the times are those of the last one.
        progress: told each batch before it is timed.

    Returns:
        `layer_ms` and `fill_ms` (by layer: its segment's time shared evenly, the last layer with
        the final head), `ramp_ms`, and `time_share` by batch, whose last is 1.
    """
    spans = depths(executor)
    context = min(CONTEXT, executor.max_len - 1)
    for slot in range(batches[-1]):
        executor.prefill(slot, [0] * context)
    totals: dict[int, float] = {}
    for batch in batches:
        progress(batch)
        plain, asked, fills = _passes(executor, batch, context)
        totals[batch] = sum(plain[:-1]) + asked[-1]
    layer = [ms / span for ms, span in zip(plain, spans, strict=True) for _ in range(span)]
    layer[-1] += max(0.0, asked[-1] - plain[-1])
    ramps = [max(0.0, a - p) for a, p in zip(asked[:-1], plain[:-1], strict=True)]
    # other work makes a pass longer and never shorter: few rows take no longer than many
    least = np.minimum.accumulate([totals[batch] for batch in reversed(batches)])[::-1]
    return {
        "layer_ms": layer,
        "ramp_ms": statistics.median(ramps),
        "fill_ms": [ms / span for ms, span in zip(fills, spans, strict=True) for _ in range(span)],
        "time_share": {
            str(batch): float(ms / least[-1]) for batch, ms in zip(batches, least, strict=True)
        },
    }


def _passes(
    executor: Executor, batch: int, context: int
) -> tuple[list[float], list[float], list[float]]:
    """Each segment alone, with its head, and the keys and values that it is owed by those who left
    just before it: of the first segment none."""
    rows = StepRows(range(batch), [context] * batch, [0] * batch)
    nobody, everyone = np.empty(0, np.int32), np.arange(batch, dtype=np.int32)
    count = len(executor.exits) + 1

    def advance(index: int, wanted: Any) -> Callable[[], object]:
        return lambda: executor.advance(index, rows, wanted)

    def owed(index: int) -> Callable[[], object]:
        # the call fills all layers behind: what the next segment adds is told apart below
        return lambda: executor.fill(index, rows)

    calls = [advance(index, nobody) for index in range(count)]
    calls += [advance(index, everyone) for index in range(count)]
    calls += [owed(index) for index in range(1, count)]
    found = lower_quartiles_ms(calls)
    behind = [*found[2 * count :], 0.0]
    fills = [max(0.0, a - b) for a, b in pairwise(behind)]
    return found[:count], found[count : 2 * count], [0.0, *fills]


def lower_quartiles_ms(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Of calls in turns, which other work on the machine disturbs least."""
    times: list[list[float]] = [[] for _ in calls]
    begin = time.perf_counter()
    for turn in range(-WARM_UP, RUNS):
        if turn >= FEWEST and time.perf_counter() - begin > ENOUGH_S:
            break
        for call, taken in zip(calls, times, strict=True):
            started = time.perf_counter()
            call()
            wait_for_device()
            if turn >= 0:
                taken.append(time.perf_counter() - started)
    return [1e3 * statistics.quantiles(taken, n=4)[0] for taken in times]


def transfer_ms(size: int) -> float:
    """Milliseconds that `size` bytes take from one process into another through a pipe: half of
    the way there and back."""
    here, there = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(target=_echo, args=(there,), daemon=True)
    other.start()
    there.close()
    sent = bytes(size)

    def both_ways() -> None:
        here.send_bytes(sent)
        here.recv_bytes()

    try:
        both_ways()
        return lower_quartiles_ms([both_ways])[0] / 2
    finally:
        here.close()
        other.join()


def _echo(link: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a whole terminal: the other side closes then
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            link.send_bytes(link.recv_bytes())
