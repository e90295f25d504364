"""What the layers of a classifier cost here, and who leaves at its ramps: a profile for plans."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from backends.classifiers.models.base import RampedClassifier, RowState, by_shape
from backends.tetris.measured import lower_quartiles_ms, transfer_ms
from backends.tetris.ramps.readings import read
from backends.tetris.ramps.rules import RampMemory, RampRule

Prompts = Sequence[Sequence[int]]
DRAWS = 3
"""Batches of inputs that are timed: their lengths differ."""
READ_AT_ONCE = 64


@torch.inference_mode()
def decisions(model: RampedClassifier, rule: RampRule, prompts: Prompts) -> NDArray[np.bool_]:
    """Whether each of N inputs would leave behind each layer, nobody having left before: (N, L - 1)
    bool, False behind layers without a ramp."""
    found = np.zeros((len(prompts), model.depth - 1), bool)
    for begin in range(0, len(prompts), READ_AT_ONCE):
        some = prompts[begin : begin + READ_AT_ONCE]
        states = model.start(some)
        order = sorted(range(len(some)), key=lambda place: by_shape(states[place]))
        memories = [RampMemory() for _ in some]
        batch = model.gather([states[place] for place in order])
        for number in range(1, model.depth):
            batch = model.layer(number, batch)
            if number not in model.ramps:
                continue
            for place, reading in zip(order, read(model.ramp(number, batch).numpy()), strict=True):
                found[begin + place, number - 1] = rule.sure(reading, memories[place])
    return found


@torch.inference_mode()
def costs(
    model: RampedClassifier,
    prompts: Prompts,
    batches: Sequence[int],
    progress: Callable[[int], None],
) -> dict[str, Any]:
    """Milliseconds at each batch, of the first inputs of `prompts` (at least the last batch).

    Args:
        batches: ascending; the times are those of the last one.
        progress: told each batch before it is timed.

    Returns:
        `layer_ms` (the first with the embedding, the last with the classifier at the end),
        `ramp_ms`, `time_share` by batch, whose last is 1, and `state_bytes` behind each layer but
        the last, of the last batch.
    """
    totals: dict[int, float] = {}
    layers, ramp = list[float](), 0.0
    for batch in batches:
        progress(batch)
        each = [_timed(model, some) for some in draws(prompts, batch)]
        layers = [statistics.mean(some) for some in zip(*(one for one, _ in each), strict=True)]
        ramp = statistics.mean(one for _, one in each)
        totals[batch] = sum(layers)
    least = np.minimum.accumulate([totals[batch] for batch in reversed(batches)])[::-1]
    return {
        "layer_ms": layers,
        "ramp_ms": ramp,
        "time_share": {
            str(batch): float(ms / least[-1]) for batch, ms in zip(batches, least, strict=True)
        },
        "state_bytes": _state_bytes(model, prompts[: batches[-1]]),
    }


def transfers(state_bytes: Sequence[int]) -> list[float]:
    """Milliseconds for each cut, from one process into another."""
    took = {size: transfer_ms(size) for size in set(state_bytes)}
    return [took[size] for size in state_bytes]


def draws(prompts: Prompts, batch: int) -> list[Prompts]:
    """The batches that are timed."""
    count = max(1, min(DRAWS, len(prompts) // batch))
    return [prompts[place * batch : (place + 1) * batch] for place in range(count)]


def _gathered(model: RampedClassifier, prompts: Prompts) -> Any:
    return model.gather(sorted(model.start(prompts), key=by_shape))


def _timed(model: RampedClassifier, prompts: Prompts) -> tuple[list[float], float]:
    """Each layer, and the median ramp."""
    batch = _gathered(model, prompts)
    calls: list[Callable[[], object]] = [partial(_gathered, model, prompts)]
    ramps: list[Callable[[], object]] = []
    for number in range(1, model.depth + 1):
        calls.append(partial(model.layer, number, batch))
        batch = model.layer(number, batch)
        if number in model.ramps:
            ramps.append(partial(model.ramp, number, batch))
    calls.append(partial(model.final, batch))
    embed, *layers, final = lower_quartiles_ms(calls)
    layers[0] += embed
    layers[-1] += final
    return layers, statistics.median(lower_quartiles_ms(ramps)) if ramps else 0.0


def _state_bytes(model: RampedClassifier, prompts: Prompts) -> list[int]:
    found, batch = list[int](), _gathered(model, prompts)
    for number in range(1, model.depth):
        batch = model.layer(number, batch)
        found.append(sum(map(_size, batch.split())))
    return found


def _size(state: RowState) -> int:
    return state.hidden.numel() * state.hidden.element_size()
