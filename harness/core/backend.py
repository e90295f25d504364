"""The contract between the harness and a system under test."""

from __future__ import annotations

from typing import Protocol

from harness.core.nouns import BackendInfo, Commit, Request


class Backend(Protocol):
    """A system under test. Latencies come from the stamp of each poll, never from the system.

    One whose work is done elsewhere (capability `SERVER`) may offer more. `prepare(requests, load)`
    is called before the clock starts, for what need not be timed: connections, request bodies.
    `wait(timeout_s)` sleeps until `poll` has something to hand out: the load loop then calls it
    instead of napping. Its commits say when their bytes arrived, which is their stamp.
    """

    @property
    def info(self) -> BackendInfo:
        """What this backend is, with the options it runs under."""

    def submit(self, request: Request) -> None:
        """Accept a request; must return at once (queueing is the backend's business)."""

    def poll(self) -> list[Commit]:
        """One engine step, or whatever has arrived. An empty list means nothing is ready."""

    def reset(self) -> None:
        """Drop caches and unfinished requests, so that the next trial starts cold."""

    def close(self) -> None:
        """Free the device and every process and thread."""
