"""Who leaves at a classifier's ramps, and what its states take to another process: for plans."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from backends.classifiers.models.base import RampedClassifier, RowState, gathered
from backends.tetris.measured import transfer_ms
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
        batch, order = gathered(model, some)
        memories = [RampMemory() for _ in some]
        for number in range(1, model.depth):
            batch = model.layer(number, batch)
            if number not in model.ramps:
                continue
            for place, reading in zip(order, read(model.ramp(number, batch).numpy()), strict=True):
                found[begin + place, number - 1] = rule.sure(reading, memories[place])
    return found


def transfers(state_bytes: Sequence[int]) -> list[float]:
    """Milliseconds for each cut, from one process into another."""
    took = {size: transfer_ms(size) for size in set(state_bytes)}
    return [took[size] for size in state_bytes]


def draws(prompts: Prompts, batch: int) -> list[Prompts]:
    """The batches that are timed."""
    count = max(1, min(DRAWS, len(prompts) // batch))
    return [prompts[place * batch : (place + 1) * batch] for place in range(count)]


@torch.inference_mode()
def state_bytes(model: RampedClassifier, prompts: Prompts) -> list[int]:
    """Of a batch behind each layer but the last."""
    found = list[int]()
    batch, _ = gathered(model, prompts)
    for number in range(1, model.depth):
        batch = model.layer(number, batch)
        found.append(sum(map(_size, batch.split())))
    return found


def _size(state: RowState) -> int:
    return state.hidden.numel() * state.hidden.element_size()
