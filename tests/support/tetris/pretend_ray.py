"""As much of Ray as the live pipeline asks for, in this process, so that actors fail when told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any


class PretendActorError(Exception):
    """In place of `ray.exceptions.RayActorError`."""


class PretendTimeoutError(Exception):
    """In place of `ray.exceptions.GetTimeoutError`."""


@dataclass(frozen=True, slots=True, eq=False)
class PretendCall:
    """Ends at a time of `time.monotonic`, with an answer or an actor's death."""

    at_s: float
    answer: Any


@dataclass(slots=True, eq=False)
class PretendActor:
    """Number so many of those that were started; a method is called as `actor.run.remote(...)`."""

    ray: PretendRay
    number: int
    made: Any

    def __getattr__(self, name: str) -> Any:
        return _Method(self, name)


@dataclass(frozen=True, slots=True)
class _Method:
    actor: PretendActor
    name: str

    def remote(self, *told: Any) -> PretendCall:
        ray, took_ms = self.actor.ray, 0.0
        if self.name == "run":
            *rest, took_ms = told
            told = (*rest, 0.0)
        if ray.dies(self.actor.number, self.name):
            answer: Any = PretendActorError()
        else:
            answer = getattr(self.actor.made, self.name)(*told)
        if self.name == "run" and isinstance(answer, tuple):
            answer = (*answer[:-1], took_ms)
        if self.name == "ready":
            took_ms = ray.ready_ms
        call = PretendCall(time.monotonic() + took_ms / 1e3, answer)
        if self.name == "run":
            ray.under_way = [one for one in ray.under_way if one.at_s > time.monotonic()]
            ray.under_way.append(call)
            ray.most_at_once = max(ray.most_at_once, len(ray.under_way))
        return call


class PretendRay:
    """`dies` says of an actor's number and a method's name whether the call ends in its death;
    `slow_to_start` lets `ready` outlast every timeout; else it takes `ready_ms`."""

    exceptions = SimpleNamespace(
        RayActorError=PretendActorError, GetTimeoutError=PretendTimeoutError
    )

    def __init__(
        self,
        dies: Callable[[int, str], bool] = lambda number, method: False,
        slow_to_start: bool = False,
    ) -> None:
        self.dies, self._slow_to_start = dies, slow_to_start
        self.ready_ms = 0.0
        self.started: list[PretendActor] = []
        self.killed: list[PretendActor] = []
        self.under_way: list[PretendCall] = []
        self.most_at_once = 0

    def remote(self, **options: Any) -> Callable[[type], Any]:
        """The decorator of an actor's class."""
        ray = self

        def decorate(made: type) -> Any:
            class Started:
                @staticmethod
                def remote() -> PretendActor:
                    ray.started.append(PretendActor(ray, len(ray.started), made()))
                    return ray.started[-1]

            return Started

        return decorate

    def get(self, what: Any, timeout: float | None = None) -> Any:
        """Answers; raises what a dead actor raises."""
        if isinstance(what, list):
            if timeout is not None and self._slow_to_start:
                raise PretendTimeoutError
            return [self.get(one) for one in what]
        time.sleep(max(what.at_s - time.monotonic(), 0.0))
        if isinstance(what.answer, PretendActorError):
            raise what.answer
        return what.answer

    def wait(
        self, calls: list[PretendCall], num_returns: int, timeout: float
    ) -> tuple[list[PretendCall], list[PretendCall]]:
        """The first call to end, if one does in time."""
        first = min(calls, key=lambda one: one.at_s)
        time.sleep(min(max(first.at_s - time.monotonic(), 0.0), timeout))
        done = [first] if first.at_s <= time.monotonic() else []
        return done, [one for one in calls if one not in done]

    def kill(self, actor: PretendActor) -> None:
        """End an actor."""
        self.killed.append(actor)

    def shutdown(self) -> None:
        """Nothing is left to end."""
