"""When requests arrive, in seconds after the start of the load; the first arrives at 0."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.files import looked_for, user_path
from harness.core.names import stands_in_for
from harness.core.nouns import Load, Trial
from workloads.readers import Budget, read_records, text_lines

_COLUMN = "timestamp"
SMALLEST = 1e-9
"""Of rates and shapes: thirty years between two requests. Beyond it arrivals overflow."""

MOST_SECONDS = 1e11
"""Of a trace's times: seconds since 1970 are 2e9, milliseconds 2e12."""


Seed = int | Sequence[int]


def arrival_times(load: Load, count: int, seed: Seed, budget: Budget | None = None) -> list[float]:
    """Arrival times of `count` requests, ascending.

    * closed, and prompts asked for their answers' sake: all 0; the load loop submits when a slot is
      free.
    * constant: every 1/rate seconds.
    * poisson: independent exponential gaps with mean 1/rate.
    * gamma: independent gamma gaps with mean 1/rate and shape `burstiness`, so that their
      coefficient of variation is 1/sqrt(burstiness): 1 is Poisson, smaller is burstier. This is the
      burstiness of `vllm bench serve`, without its final stretching of the gaps to the exact rate.
    * trace: recorded times, moved so that the first is 0. A file with one time in seconds per line,
      or CSV or JSON lines with a column ``timestamp`` (each may be gzipped).

    The draws come from numpy's PCG64 generator seeded with `seed`. Of a trace no more is read than
    `budget` has left.

    Raises:
        UserError: for a missing or impossible rate or burstiness, or a bad or too short trace.
    """
    if not load.is_open:
        return [0.0] * count
    if load.kind == "trace":
        return _trace_times(load, count, budget)
    rate = _positive(load.rate, "rate", load)
    if load.kind == "constant":
        return [number / rate for number in range(count)]
    shape = _positive(load.burstiness, "burstiness", load) if load.kind == "gamma" else 1.0
    return _random_times(rate, shape, count, seed)


def times_within(
    load: Load, duration_s: float, seed: Seed, budget: Budget | None = None
) -> list[float]:
    """Arrival times of an open load from 0 up to, but without, `duration_s` seconds, ascending: the
    first of those that `arrival_times` gives.

    Raises:
        UserError: as `arrival_times`.
    """
    if load.kind == "trace":
        return _trace_times(load, None, budget, duration_s)
    count = round(_positive(load.rate, "rate", load) * duration_s) + 16
    while (times := arrival_times(load, count, seed))[-1] < duration_s:
        count *= 2
    return [time for time in times if time < duration_s]


def of_trial(trial: Trial) -> list[float]:
    """The arrival times of a trial: of its requests, or of those that its duration holds. They are
    the same in each repeat, unless its load is drawn anew in each: then a repeat that is measured
    again has those of the one that it stands in for. Raises `UserError` as `arrival_times`."""
    if trial.duration_s is not None and trial.load.is_open:
        return times_within(trial.load, trial.duration_s, trial.seed)
    first = stands_in_for(trial.repeat)
    repeat = trial.repeat if first is None else first
    seed = (trial.seed, repeat) if trial.load.redraw else trial.seed
    return arrival_times(trial.load, trial.requests, seed)


def _random_times(rate: float, shape: float, count: int, seed: Seed) -> list[float]:
    import numpy as np

    gaps = np.random.Generator(np.random.PCG64(seed)).standard_gamma(shape, size=max(count - 1, 0))
    times = np.concatenate(([0.0], np.cumsum(gaps) / (shape * rate)))
    return [float(time) for time in times[:count]]


def _positive(value: float | None, name: str, load: Load) -> float:
    if value is None:
        raise UserError(f"load {load.kind}: '{name}' is missing")
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"load {load.kind}: '{name}' must be a positive number, got {value!r}")
    if not SMALLEST <= value <= 1 / SMALLEST:
        budget = f"{SMALLEST:g} to {1 / SMALLEST:g}"
        raise UserError(f"load {load.kind}: '{name}' must be within {budget}, got {value!r}")
    return float(value)


def _trace_times(
    load: Load, count: int | None, budget: Budget | None, duration_s: float = math.inf
) -> list[float]:
    if not load.trace:
        raise UserError("load trace: 'trace' is missing; expected the path of a trace file")
    path = user_path(load.trace, "load trace: trace")
    if not path.exists():
        raise UserError(f"load trace: trace file '{load.trace}' does not exist{looked_for(path)}")
    times: list[float] = []
    for where, time in _times(path, budget):
        if times and time < times[-1]:
            raise UserError(f"{where}: time {time:g} is before the one above it, {times[-1]:g}")
        if times and time - times[0] >= duration_s:
            break
        times.append(time)
        if len(times) == count:
            break
    if times and times[-1] > MOST_SECONDS and budget is not None:
        budget.remarks.append(
            f"{path}: its times reach {times[-1]:.4g}, which in seconds is thousands of years; are "
            "they milliseconds?"
        )
    if len(times) == count or (count is None and times):
        return [time - times[0] for time in times]
    wanted = "" if count is None else f", but there are {count} requests"
    raise UserError(f"{path}: the trace holds {len(times)} arrivals{wanted}")


def _times(path: Path, budget: Budget | None) -> Iterator[tuple[str, float]]:
    """Where each time of a trace stands, and the time."""
    name = path.name.lower().removesuffix(".gz")
    values: Iterable[tuple[str, Any]]
    if name.endswith((".csv", ".jsonl", ".json", ".parquet")):
        records = read_records(path, budget)
        values = ((where, _column(where, record)) for where, record in records)
    else:
        values = _plain_times(path, budget or Budget())
    for where, value in values:
        try:
            time = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            time = math.nan
        if not (math.isfinite(time) and time >= 0):
            shown = repr(value.strip() if isinstance(value, str) else value)[:60]
            shown = "nothing" if value is None else shown
            raise UserError(f"{where}: expected a time in seconds, 0 or more, got {shown}")
        yield where, time


def _plain_times(path: Path, budget: Budget) -> Iterator[tuple[str, str]]:
    for where, line in text_lines(path, budget):
        if line.strip():
            budget.spend_row(where)
            yield where, line


def _column(where: str, record: Any) -> Any:
    if _COLUMN not in record:
        has = ", ".join(str(name) for name in islice(record, 10))
        raise UserError(f"{where}: column '{_COLUMN}' is missing (the row has: {has})")
    return record[_COLUMN]
