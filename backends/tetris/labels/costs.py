"""What the planner is told of the workers: measured by all of them at once, before they serve."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from backends.tetris.labels.jobs import LabelCostsJob, LabelStageSetup
from backends.tetris.measured import lower_quartiles_ms
from backends.tetris.profile import StageProfile, profile_from
from backends.tetris.workers.piped_stages import PipedStages

LabelStages = PipedStages[LabelStageSetup, Any, Any]
KIND = "core"
"""Of the workers, which are all alike."""
SIZES = (1, 4, 16, 64, 256, 1024)


def profiled(
    workers: LabelStages, count: int, inputs: Sequence[tuple[int, ...]], batch: int
) -> StageProfile:
    """The profile of `count` workers that have all layers, with a survival of 1: nobody has been
    seen yet. The layers' costs contain those of the ramps, since all of them are asked.

    Args:
        inputs: what is timed, one or more; again from the first where a batch is larger.
    """
    sizes = (*(size for size in SIZES if size < batch), batch)
    timed = tuple(inputs[place % len(inputs)] for place in range(max(batch, len(inputs))))
    for index in range(count):
        workers.send(index, LabelCostsJob(timed, sizes), hurry=False)
    found = [workers.receive(index) for index in range(count)]
    layers = np.mean([one["layer_ms"] for one in found], axis=0)
    shares = {size: statistics.mean(one["time_share"][size] for one in found) for size in sizes}
    outside_ms = statistics.mean(one["outside_ms"] for one in found)
    outside = {size: outside_ms * share for size, share in shares.items()}
    told = {
        "layers": len(layers),
        "batch": batch,
        "survival": [1.0] * (len(layers) + 1),
        "layer_ms": {KIND: layers.tolist()},
        "ramp_ms": {KIND: 0.0},
        "transfer_ms": _transfers(workers, count, found[0]["state_bytes"]),
        "time_share": {KIND: shares},
        "batch_ms": {KIND: outside},
        "stage_ms": {KIND: outside},
    }
    return profile_from(told, "measured here")


def _transfers(workers: LabelStages, count: int, state_bytes: Sequence[int]) -> list[float]:
    """Milliseconds for each cut: from a worker to the pipeline, and to another; the mean of all,
    since some may be on other machines."""

    def there(size: int) -> None:
        for index in range(count):
            workers.send(index, bytes(size), hurry=False)
            workers.receive(index)

    sizes = sorted(set(state_bytes))
    took = lower_quartiles_ms([partial(there, size) for size in sizes])
    by_size = {size: ms / count for size, ms in zip(sizes, took, strict=True)}
    return [2 * by_size[size] for size in state_bytes]
