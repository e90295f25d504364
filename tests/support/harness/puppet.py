"""A backend that does as a test tells it, and requests for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from harness.core.backend import Backend
from harness.core.nouns import BackendInfo, Commit, Load, Model, Request

MS = 1_000_000


CLOSED = Load("closed", concurrency=2)


OPEN = Load("constant", rate=1.0)


def requests(count: int, tokens: int = 4, arrivals: Iterable[float] = ()) -> list[Request]:
    times = [*arrivals] or [0.0] * count
    return [Request(f"r{i}", (1,), tokens, arrival_s=times[i]) for i in range(count)]


class Puppet(Backend):
    """Hands out what it was given, one list per poll; then finishes whatever is in flight."""

    def __init__(
        self, polls: Iterable[list[Commit]] = (), work: Callable[[], None] = lambda: None
    ) -> None:
        self.polls = deque(polls)
        self.work = work
        self.in_flight: list[str] = []
        self.most_in_flight = 0
        self.info = BackendInfo("puppet", "0", "simulation", {}, True)

    @classmethod
    def open(cls, model_dir: Path | None, model: Model, options: Mapping[str, Any]) -> Self:
        return cls()

    def submit(self, request: Request) -> None:
        self.in_flight.append(request.id)
        self.most_in_flight = max(self.most_in_flight, len(self.in_flight))

    def poll(self) -> list[Commit]:
        self.work()
        if self.polls:
            return self.polls.popleft()
        done, self.in_flight = self.in_flight, []
        return [Commit(name, (7,), "stop") for name in done]

    def reset(self) -> None:
        self.in_flight.clear()
