"""What the pipeline and its stages say to each other, through pipes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backends.classifiers.flight import InputInFlight
from backends.classifiers.models.base import RowState
from backends.tetris.ramps.rules import RampRule


@dataclass(frozen=True, slots=True)
class LabelStageSetup:
    """What a stage's process opens."""

    model_dir: str
    dtype: str
    threads: int
    first: int
    """Layers before those that it keeps."""
    last: int
    """Layers up to their end."""
    rule: RampRule | None
    ends: tuple[int, ...]
    """Layers behind which inputs may leave, of all stages."""
    black_box: bool


@dataclass(frozen=True, slots=True)
class LabelCostsJob:
    """A worker is to say what its layers cost: all of them, of which it has to have all."""

    prompts: tuple[tuple[int, ...], ...]
    batches: tuple[int, ...]
    """Ascending."""


@dataclass(frozen=True, slots=True)
class LabelJob:
    """A batch, or what has become of it."""

    span: tuple[int, int]
    """Layers before the stage, and up to its end."""
    inputs: tuple[InputInFlight, ...]
    """Without their states."""
    states: tuple[tuple[bytes, tuple[int, ...], int], ...]
    """Of each input with a state its bytes, its shape and its tokens that are no padding."""
    dtype: str
    busy_us: float = 0.0
    """How long the stage ran it."""


def packed(
    inputs: Sequence[InputInFlight], span: tuple[int, int], busy_us: float = 0.0
) -> LabelJob:
    """A job of inputs, all of which have a state or none; they lose it."""
    states, dtype = [], "float32"
    for one in inputs:
        if one.state is not None:
            hidden = one.state.hidden.contiguous()
            dtype = str(hidden.dtype).removeprefix("torch.")
            raw = hidden.view(torch.uint8).numpy().tobytes()
            states.append((raw, tuple(hidden.shape), one.state.length))
        one.state = None
    return LabelJob(span, tuple(inputs), tuple(states), dtype, busy_us)


def unpacked(job: LabelJob) -> list[InputInFlight]:
    """The inputs of a job with their states."""
    dtype: Any = getattr(torch, job.dtype)
    inputs = list(job.inputs)
    for one, (raw, shape, length) in zip(inputs, job.states, strict=False):
        hidden = torch.frombuffer(bytearray(raw), dtype=dtype).view(shape)
        one.state = RowState(hidden, length)
    return inputs
