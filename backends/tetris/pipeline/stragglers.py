"""Devices that have become slow: found by their batch times, left out of the next plan."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

WEIGHT = 0.2
"""Of the newest batch in the moving average; the paper (§3.3.1) names neither number."""
TOO_SLOW = 1.5
LEAST_BATCHES = 5


def kind_of(device: str) -> str:
    """The kind of a device named KIND-number."""
    return device.rpartition("-")[0]


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A device that takes `times` its profiled time for the batches that it begins from a moment
    on: milliseconds of a run."""

    times: float
    from_ms: float = 0.0


def slowed(slow: Mapping[str, Slowdown], device: str, now_ms: float) -> float:
    """How many times its profiled time a device takes for a batch that begins now."""
    found = slow.get(device)
    return 1.0 if found is None or now_ms < found.from_ms else found.times


class BatchClocks:
    """An exponential moving average of each device's batch times.

    Times come relative to the profiled ones, so that batches of any size count alike.
    """

    def __init__(self) -> None:
        self._average: dict[str, float] = {}
        self._batches: dict[str, int] = {}

    def add(self, device: str, took_ms: float, expected_ms: float) -> None:
        """A batch that the profile gives `expected_ms` (above 0)."""
        ratio = took_ms / expected_ms
        last = self._average.get(device, ratio)
        self._average[device] = last + WEIGHT * (ratio - last)
        self._batches[device] = self._batches.get(device, 0) + 1

    def stragglers(self, stage_of: Mapping[str, int], *, alone: bool = True) -> set[str]:
        """Devices above 1.5 times the median of their stage, of those that ran 5 batches or more.

        Of two middle ones the quicker one is usual; one `alone` is compared with the profile, or
        with nobody.
        """
        by_stage: dict[int, list[str]] = {}
        for device, stage in stage_of.items():
            if self._batches.get(device, 0) >= LEAST_BATCHES:
                by_stage.setdefault(stage, []).append(device)
        found = set()
        for devices in by_stage.values():
            ratios = [self._average[device] for device in devices]
            usual = statistics.median_low(ratios)
            if len(ratios) == 1:
                usual = 1.0 if alone else math.inf
            found |= {d for d in devices if self._average[d] > TOO_SLOW * usual}
        return found
