"""What the parts of a step cost on this machine, measured before any trial."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from backends.engine.costs.exit_choice import LayerCosts
from backends.engine.executors.base import Executor, StepRows
from harness.core.pass_costs import StepCosts

POSITIONS = 256
"""Length of the text whose next tokens are timed."""
RUNS = 25


def measure(executor: Executor, max_drafts: int) -> StepCosts:
    """Microseconds of each segment and head for one sequence, at one row and at `max_drafts` + 1
    (where a slot is shorter: at the most rows that it holds after a prompt of one token).

    Lower quartiles of `RUNS` calls, which other work on the machine disturbs least; host time
    included. Slot 0 of the executor is overwritten.
    """
    drafts = min(max_drafts, executor.max_len - 2)
    length = min(POSITIONS, executor.max_len - drafts - 1)
    executor.prefill(0, [0] * length)

    def timed(index: int, rows: int, wanted: int) -> float:
        def call() -> None:
            # the rows are made anew each time, as the decoder does it
            table = StepRows([0] * rows, range(length, length + rows), [0] * rows)
            executor.advance(index, table, np.arange(wanted, dtype=np.int32))

        return _timed(call)

    last = len(executor.exits)
    segments, full, heads = [], [], []
    for index in range(last + 1):
        segments.append(timed(index, 1, 0))
        full.append(timed(index, drafts + 1, 0))
        if index < last:
            heads.append(max(0.0, timed(index, 1, 1) - segments[-1]))
    whole, whole_full = timed(last, 1, 1), timed(last, drafts + 1, drafts + 1)
    return StepCosts(
        segments=tuple(segments),
        exit_heads=tuple(heads),
        final_head=max(0.0, whole - segments[-1]),
        segments_full=tuple(full),
        final_head_full=max(0.0, whole_full - full[-1]),
    )


def layer_costs(plain: StepCosts, cut: StepCosts, layers: int) -> LayerCosts:
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


def _timed(call: Callable[[], object]) -> float:
    for _ in range(3):
        call()
    found = []
    for _ in range(RUNS):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return 1e6 * statistics.quantiles(found, n=4)[0]
