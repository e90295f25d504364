"""What one iteration did, and what of it goes into each request's telemetry."""

from __future__ import annotations

import functools
from collections.abc import Mapping
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

    def counts(self) -> list[Mapping[str, float]]:
        """For each request in order, its share of the counts (see `results.work`)."""
        rows = len(self.names)
        timed: dict[str, float] = {}
        if self.forward_ns:
            times = ("check_us", self.check_ns), ("fill_us", self.fill_ns)
            for name, nanoseconds in (*times, ("forward_us", self.forward_ns)):
                timed[name] = nanoseconds / 1e3 / rows
        found = []
        for own in self.own_exits:
            counts = _counts(self.depth, self.exit_layer, own, self.checked, self.mixed, rows)
            found.append({**counts, **timed} if timed else counts)
        return found


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
