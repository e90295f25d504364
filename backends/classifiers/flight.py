"""An input under way, and what is told of it at its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from backends.classifiers.models.base import RowState
from backends.tetris.ramps.readings import RampReading
from backends.tetris.ramps.rules import RampMemory
from harness.core.nouns import Commit, Label


@dataclass(slots=True)
class InputInFlight:
    """Travels from segment to segment."""

    request_id: str
    prompt_ids: tuple[int, ...]
    state: RowState | None = None
    """None before the first layer."""
    memory: RampMemory = field(default_factory=RampMemory)
    layers_run: int = 0
    asked: list[int] = field(default_factory=list)
    """Numbers of layers behind which its ramp was asked."""
    batch_rows: int = 0
    """Inputs of the batch in which it ran last."""
    waiting_since_ns: int = 0
    arrived_ns: int = 0
    """Of a pipeline: when it came, by the monotonic clock."""
    deaths: int = 0
    """Of a pipeline: workers that died while they ran it."""


def answer(one: InputInFlight, labels: tuple[str, ...], depth: int) -> Commit:
    """The only commit of an input that is done: its label, and the counts of `results.metrics.work`
    as an early-exit backend has them, of one decision."""
    reading = one.memory.answer
    assert reading is not None
    counts = {
        "steps": 1.0,
        "layers_run": float(one.layers_run),
        "layers_skipped": float(depth - one.layers_run),
        "layers_total": float(depth),
        "layers_needed": float(one.memory.sure_after or depth),
        "batch_rows": float(one.batch_rows),
    }
    for layer in one.asked:
        counts[f"checks_layer_{layer}"] = 1.0
    if one.layers_run < depth:
        counts[f"exits_layer_{one.layers_run}"] = 1.0
    if one.memory.sure_after:
        counts[f"own_exits_layer_{one.memory.sure_after}"] = 1.0
    label = Label(labels[reading.label], reading.probability)
    return Commit(one.request_id, (), "stop", telemetry=counts, label=label)


def decided_at_end(one: InputInFlight, reading: RampReading) -> None:
    """The final classifier's reading counts where no ramp was sure."""
    if one.memory.answer is None:
        one.memory.answer = reading
