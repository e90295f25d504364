"""What one iteration did, and what of it goes into each request's telemetry."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class DecodedStep:
    """One iteration that decoded. Times are 0 where they were not asked for."""

    names: list[str]
    """The engine's ids of the requests that decoded."""
    depth: int
    """Layers of the model."""
    exit_layer: int
    own_exits: list[int]
    """For each request, the first checked layer at which it alone would have left."""
    checked: tuple[int, ...] = ()
    """The layers whose check was evaluated."""
    mixed: bool = False
    """It also read prompt tokens, and so ran at full depth."""
    check_ns: int = 0
    fill_ns: int = 0
    forward_ns: int = 0
    confidence: list[list[float]] = field(default_factory=list)
    """Where it is recorded: of each checked layer, each request's."""

    def parts(self) -> list[Part]:
        """For each request in order, what it will be told of this step."""
        rows = len(self.names)
        what = self.depth, self.exit_layer, self.checked, self.mixed, rows
        us = 1e3 * rows
        times = self.check_ns / us, self.fill_ns / us, self.forward_ns / us
        return [(what, own, *times) for own in self.own_exits]


class StepLog:
    """The steps that decoded each request, added up when it ends.

    Counts handed out token by token cost 3% of a small model's step at 16 requests.
    """

    def __init__(self) -> None:
        self._parts: defaultdict[str, list[Part]] = defaultdict(list)

    def note(self, step: DecodedStep, live: Container[str]) -> None:
        """The step decoded a token of each of its requests that is still wanted."""
        for name, part in zip(step.names, step.parts(), strict=True):
            if name in live:
                self._parts[name].append(part)

    def take(self, name: str, tokens: int) -> dict[str, float]:
        """The counts of the steps that decoded a request's first `tokens` tokens after the
        prompt's (see `results.metrics.work`), its share of each step's times; the request is
        forgotten."""
        return summed(self._parts.pop(name, [])[:tokens])

    def clear(self) -> None:
        """Forget all requests."""
        self._parts.clear()


What = tuple[int, int, tuple[int, ...], bool, int]
"""Depth, exit layer, checked layers, whether mixed, and rows of a step."""
Part = tuple[What, int, float, float, float]
"""A step, a request's own exit, and its share of check, fill and forward pass in microseconds."""


def summed(parts: Sequence[Part]) -> dict[str, float]:
    """The counts of a request that had these parts in steps."""
    if not parts:
        return {}
    found: dict[str, float] = defaultdict(float)
    steps, own, *times = zip(*parts, strict=True)
    for (what, layer), number in Counter(zip(steps, own, strict=True)).items():
        for name, count in step_counts(*what, layer).items():
            found[name] += count * number
    if any(times[-1]):
        found |= zip(("check_us", "fill_us", "forward_us"), map(sum, times), strict=True)
    return dict(found)


@functools.lru_cache(maxsize=4096)
def step_counts(
    depth: int, exit_layer: int, checked: tuple[int, ...], mixed: bool, rows: int, own: int
) -> Mapping[str, float]:
    """The counts of one step for a sequence that alone would have left after `own` layers; see
    `results.metrics.work`. Kept for the next ones, so not to be written to."""
    found = {
        "steps": 1,
        "layers_run": exit_layer,
        "layers_skipped": depth - exit_layer,
        "layers_total": depth,
        "layers_needed": own,
        "batch_rows": rows,
        **{f"checks_layer_{layer}": 1 for layer in checked},
    }
    if exit_layer < depth:
        found[f"exits_layer_{exit_layer}"] = 1
    if own < depth:
        found[f"own_exits_layer_{own}"] = 1
    if mixed:
        found["mixed_steps"] = 1
    else:
        found |= {f"decode_steps_batch_{rows}": 1, f"decode_layers_batch_{rows}": exit_layer}
    return found
