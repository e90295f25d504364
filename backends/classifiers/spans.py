"""Runs a batch through some of a network's layers, and asks the ramps that are to be asked."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from backends.classifiers.flight import InputInFlight, decided_at_end
from backends.classifiers.models.base import RampedClassifier, RowState, by_shape
from backends.tetris.ramps.readings import read
from backends.tetris.ramps.wrapper import ExitWrapper


@torch.inference_mode()
def run_span(
    model: RampedClassifier,
    wrapper: ExitWrapper,
    inputs: Sequence[InputInFlight],
    first: int,
    last: int,
) -> None:
    """Run layers first + 1 to `last` for inputs that have run `first`; with 0 they are embedded,
    and with the last layer the classifier decides for those of whom no ramp was sure. The inputs'
    states, memories and counts change."""
    if first == 0:
        states = model.start([one.prompt_ids for one in inputs])
        for one, state in zip(inputs, states, strict=True):
            one.state = state
    inputs = sorted(inputs, key=lambda one: by_shape(_state(one)))
    batch = model.gather([_state(one) for one in inputs])
    for number in range(first + 1, last + 1):
        batch = model.layer(number, batch)
        if number < model.depth and wrapper.asks(number):
            _ask(model, wrapper, inputs, number, batch)
    if last == model.depth:
        for one, reading in zip(inputs, read(model.final(batch).numpy()), strict=True):
            decided_at_end(one, reading)
            one.state = None
    else:
        for one, state in zip(inputs, batch.split(), strict=True):
            one.state = state
    for one in inputs:
        one.layers_run, one.batch_rows = last, len(inputs)


def _ask(
    model: RampedClassifier,
    wrapper: ExitWrapper,
    inputs: Sequence[InputInFlight],
    number: int,
    batch: object,
) -> None:
    """The ramp costs little beside a layer, and taking some inputs out costs as much: all are
    computed, those who are not sure are judged."""
    logits = model.ramp(number, batch).numpy()
    open_ = [place for place, one in enumerate(inputs) if one.memory.answer is None]
    if not open_:
        return
    wrapper.judge(number, [inputs[place].memory for place in open_], logits[open_])
    for place in open_:
        inputs[place].asked.append(number)


def _state(one: InputInFlight) -> RowState:
    assert one.state is not None
    return one.state
