"""What the parts of a step cost on this machine, measured before any trial."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from backends.engine.costs.exit_choice import LayerCosts
from backends.engine.costs.waiting import wait_for_device
from backends.engine.executors.base import Executor, StepRows
from harness.core.pass_costs import StepCosts

POSITIONS = 256
"""Length of the text whose next tokens are timed."""
RUNS, FEWEST_RUNS, WARM_UP = 25, 3, 3
ENOUGH_S = 1.5
"""After which a timing neither warms up nor makes more than the fewest runs: a run of a large model
takes long, and varies little."""
KINDS = PLAIN, ASKED, FULL, VERIFIED = range(4)
"""Passes at one row, with the exit heads asked; at all rows, with the final head asked of all."""


def measure(executor: Executor, max_drafts: int, *, full: bool = True) -> StepCosts:
    """Microseconds of each segment and head for one sequence, at one row and, with `full`, at
    `max_drafts` + 1 (where a slot is shorter: at the most rows that it holds after a prompt of one
    token).

    Segments are timed one after another as a pass runs them, so that each finds its weights where
    a pass finds them: those of one segment alone may lie in a cache that all of them do not fit in.
    Lower quartiles of up to `RUNS` passes, which other work on the machine disturbs least; host
    time included. Slot 0 of the executor is overwritten.
    """
    drafts = min(max_drafts, executor.max_len - 2)
    length = min(POSITIONS, executor.max_len - drafts - 1)
    executor.prefill(0, [0] * length)
    last = len(executor.exits)

    def timed(kind: int, index: int) -> float:
        rows = 1 if kind in (PLAIN, ASKED) else drafts + 1
        wanted = rows if kind == ASKED or (kind == VERIFIED and index == last) else 0
        started = time.perf_counter()
        # the rows are made anew each time, as the decoder does it
        table = StepRows([0] * rows, range(length, length + rows), [0] * rows)
        executor.advance(index, table, np.arange(wanted, dtype=np.int32))
        wait_for_device()
        return time.perf_counter() - started

    segments, asked, *many = _rounds(timed, last + 1, KINDS if full else KINDS[:FULL])
    found = StepCosts(
        segments=tuple(segments),
        exit_heads=tuple(max(0.0, a - s) for a, s in zip(asked[:-1], segments[:-1], strict=True)),
        final_head=max(0.0, asked[-1] - segments[-1]),
    )
    if not many:
        return found
    rows, verified = many
    final = max(0.0, verified[-1] - rows[-1])
    return replace(found, segments_full=tuple(rows), final_head_full=final)


def runs() -> Iterator[bool]:
    """The runs of a timing, and whether each counts: some warm up, at least one."""
    begin = time.perf_counter()
    for most, fewest, counts in ((WARM_UP, 1, False), (RUNS, FEWEST_RUNS, True)):
        for made in range(most):
            if made >= fewest and time.perf_counter() - begin > ENOUGH_S:
                break
            yield counts


def _rounds(
    timed: Callable[[int, int], float], segments: int, kinds: Sequence[int]
) -> list[list[float]]:
    """Microseconds by kind of pass and segment."""
    found: list[list[list[float]]] = [[[] for _ in range(segments)] for _ in kinds]
    for counts in runs():
        for kind, parts in zip(kinds, found, strict=True):
            for index, part in enumerate(parts):
                seconds = timed(kind, index)
                if counts:
                    part.append(seconds)
    return [[1e6 * statistics.quantiles(part, n=4)[0] for part in parts] for parts in found]


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
