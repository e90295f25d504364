"""A clock that moves only when it is read (by a microsecond) or slept on."""

from __future__ import annotations

from dataclasses import dataclass

import pytest


@dataclass
class VirtualTime:
    """Stands in for the `time` module."""

    now_ns: int = 5_000_000_000
    naps_ns: int = 0
    reads: int = 0

    def monotonic_ns(self) -> int:
        self.now_ns += 1_000
        self.reads += 1
        return self.now_ns

    def monotonic(self) -> float:
        return self.monotonic_ns() * 1e-9

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds < 1
        self.naps_ns += round(seconds * 1e9)
        self.now_ns += round(seconds * 1e9)


def install(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    """For the load loop and the scripted backend."""
    clock = VirtualTime()
    monkeypatch.setattr("harness.measure.load_loop.time", clock)
    monkeypatch.setattr("harness.core.backend.time", clock)
    monkeypatch.setattr("backends.scripted.time", clock)
    return clock
