"""What a batch of inputs to a classifier costs outside its layers: queues, ramps read and judged,
batches put together and taken apart, pipes, answers, and the load loop that asks.

Backends are run as trials run them, one batch at a time, on inputs that all go to the last layer.
What the layers take alone is taken off.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.core.nouns import Load, Request

if TYPE_CHECKING:
    from pathlib import Path

    from harness.core.backend import Backend
    from harness.core.nouns import Model

RUNS = 7
LAPS = 4
"""Of a run over the batches that the layers were timed with; the first batch is not counted."""
NOBODY = {"measure": "entropy", "threshold": 0.0}
"""Leaves: no entropy is below 0."""


def outside(
    model: Model,
    directory: Path,
    prompts: Sequence[Sequence[int]],
    found: Mapping[str, Any],
    ramps: Sequence[int],
    threads: int,
) -> dict[str, Any]:
    """Milliseconds by kind of batch.

    Args:
        found: the layers' times, as `backends.classifiers.measured.costs` gives them.
        ramps: layers behind which a ramp stands.

    Returns:
        `batch_ms` and `stage_ms` by numbers of inputs (`backends.tetris.profile.StageProfile`), and
        `ramp_ms` of the last: a ramp with all that goes with letting inputs leave behind it.
    """
    sizes = [int(count) for count in found["time_share"]]
    whole_ms = sum(found["layer_ms"])
    layers = {size: whole_ms * found["time_share"][str(size)] for size in sizes}
    asked = (model, directory, {"threads": threads}, prompts)
    plain = _batches_ms("classifier", *asked, sizes)
    staged = _batches_ms(
        "tetris-classifier", *asked, sizes, {**NOBODY, "stages": 2, "layers": [_middle(ramps)]}
    )
    every = {**NOBODY, "layers": list(ramps)}
    [segmented] = _batches_ms("classifier-early-exit", *asked, sizes[-1:], every).values()
    ramp = max(0.0, segmented - plain[sizes[-1]]) / len(ramps)
    ramps_ms = {size: ramp * found["time_share"][str(size)] for size in sizes}
    return {
        "ramp_ms": ramp,
        "batch_ms": {str(n): max(0.0, plain[n] - layers[n]) for n in sizes},
        "stage_ms": {str(n): max(0.0, staged[n] - layers[n] - ramps_ms[n]) / 2 for n in sizes},
    }


def _middle(ramps: Sequence[int]) -> int:
    return ramps[len(ramps) // 2]


def _batches_ms(
    name: str,
    model: Model,
    directory: Path,
    common: Mapping[str, Any],
    prompts: Sequence[Sequence[int]],
    sizes: Sequence[int],
    options: Mapping[str, Any] | None = None,
) -> dict[int, float]:
    """From one batch's answers to the next one's, by inputs, one batch under way at a time."""
    from backends import open_backend
    from backends.classifiers.measured import draws

    given = {**common, **(options or {}), "batch": sizes[-1]}
    backend = open_backend(name, directory, model, given)
    try:
        return {
            size: _lower_quartile_ms(
                backend, [one for some in draws(prompts, size) for one in some], size
            )
            for size in sizes
        }
    finally:
        backend.close()


def _lower_quartile_ms(backend: Backend, prompts: Sequence[Sequence[int]], size: int) -> float:
    from harness.measure.load_loop import run_load

    wanted = [
        Request(f"{lap}-{place}", tuple(ids), 1, answer="label")
        for lap in range(LAPS)
        for place, ids in enumerate(prompts)
    ]
    found = []
    for _ in range(RUNS):
        answers = run_load(backend, wanted, Load("closed", concurrency=size))
        ends = sorted(one.commit_ns[-1] for one in answers)
        found.append((ends[-1] - ends[size - 1]) / 1e6 / (len(wanted) / size - 1))
    return statistics.quantiles(found, n=4)[0]
