"""What the parts of a step cost on this machine, measured before any trial."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from backends.engine.cost_model import Costs
from backends.engine.executor import Executor, Rows
from backends.engine.exit_choice import LayerCosts

POSITIONS = 256
"""Length of the text whose next tokens are timed."""
RUNS = 25


def measure(executor: Executor, max_drafts: int) -> Costs:
    """Microseconds of each segment and head for one sequence, at one row and at `max_drafts` + 1.

    Lower quartiles of `RUNS` calls, which other work on the machine disturbs least; host time
    included. Slot 0 of the executor is overwritten.
    """
    length = min(POSITIONS, executor.max_len - max_drafts - 1)
    executor.prefill(0, [1] * length)
    one, many = _rows(length, 1), _rows(length, max_drafts + 1)
    none, newest = np.empty(0, np.int32), np.zeros(1, np.int32)
    last = len(executor.exits)
    segments, full, heads = [], [], []
    for index in range(last + 1):
        bare = _timed(partial(executor.advance, index, one, none))
        segments.append(bare)
        full.append(_timed(partial(executor.advance, index, many, none)))
        if index < last:
            checked = _timed(partial(executor.advance, index, one, newest))
            heads.append(max(0.0, checked - bare))
    every = np.arange(max_drafts + 1, dtype=np.int32)
    whole = _timed(partial(executor.advance, last, one, newest))
    whole_full = _timed(partial(executor.advance, last, many, every))
    return Costs(
        segments=tuple(segments),
        exit_heads=tuple(heads),
        final_head=max(0.0, whole - segments[-1]),
        segments_full=tuple(full),
        final_head_full=max(0.0, whole_full - full[-1]),
    )


def layer_costs(plain: Costs, cut: Costs, layers: int) -> LayerCosts:
    """Costs by layer from those without exits (`plain`) and with some (`cut`); all layers of a
    model are taken to cost the same."""
    passes = len(cut.exit_heads)
    per_pass = max(0.0, (sum(cut.segments) - sum(plain.segments)) / passes)
    one = (sum(plain.segments) - per_pass) / layers
    full = (sum(plain.segments_full or plain.segments) - per_pass) / layers
    return LayerCosts(
        layers=[one] * layers,
        exit_head=statistics.median(cut.exit_heads),
        final_head=plain.final_head,
        layers_full=[full] * layers,
        final_head_full=plain.final_head_full,
        per_pass=per_pass,
    )


def _rows(start: int, count: int) -> Rows:
    return Rows.of([(0, start + i, 1) for i in range(count)])


def _timed(call: Callable[[], object]) -> float:
    for _ in range(3):
        call()
    found = []
    for _ in range(RUNS):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return 1e6 * statistics.quantiles(found, n=4)[0]
