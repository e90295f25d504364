"""What one iteration did, and what of it goes into each request's telemetry."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class Step:
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

    def kind(self, row: int) -> _Kind:
        """What its request's counts depend on."""
        own, rows = self.own_exits[row], len(self.names)
        return self.depth, self.exit_layer, own, self.checked, self.mixed, rows


class StepLog:
    """The steps that decoded each request, added up when it ends.

    Counts handed out token by token cost 3% of a small model's step at 16 requests.
    """

    def __init__(self) -> None:
        self._places: defaultdict[str, list[tuple[Step, int]]] = defaultdict(list)

    def note(self, step: Step, live: Container[str]) -> None:
        """The step decoded a token of each of its requests that is still wanted."""
        for row, name in enumerate(step.names):
            if name in live:
                self._places[name].append((step, row))

    def take(self, name: str, tokens: int) -> dict[str, float]:
        """The counts of the steps that decoded a request's first `tokens` tokens after the
        prompt's (see `results.work`), its share of each step's times; the request is forgotten."""
        return summed(self._places.pop(name, [])[:tokens])

    def clear(self) -> None:
        """Forget all requests."""
        self._places.clear()


def summed(places: list[tuple[Step, int]]) -> dict[str, float]:
    """The counts of a request that stood in these steps at these rows."""
    found: dict[str, float] = defaultdict(float)
    for kind, times in Counter(step.kind(row) for step, row in places).items():
        for name, count in _counts(*kind).items():
            found[name] += count * times
    timed = [(step, 1e3 * len(step.names)) for step, _ in places if step.forward_ns]
    if timed:
        found["check_us"] = sum(step.check_ns / share for step, share in timed)
        found["fill_us"] = sum(step.fill_ns / share for step, share in timed)
        found["forward_us"] = sum(step.forward_ns / share for step, share in timed)
    return dict(found)


_Kind = tuple[int, int, int, tuple[int, ...], bool, int]


@functools.lru_cache(maxsize=4096)
def _counts(
    depth: int, exit_layer: int, own: int, checked: tuple[int, ...], mixed: bool, rows: int
) -> Mapping[str, float]:
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
