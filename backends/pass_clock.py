"""How long a model runs, as opposed to the engine around it: what explains the time of a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any

from harness.core.names import ATTENDED, PASS_US, attended


class PassClock:
    """The time that passes through a model have taken so far, and what each request under way had
    to wait for. It enters no latency."""

    def __init__(self) -> None:
        self._spent_ns = 0
        self._runs = False
        self._first_ns: dict[Hashable, int] = {}
        """By request: what had been spent when its first commit came."""

    def watch(self, owner: Any, *names: str) -> None:
        """Take the time of these methods of `owner`, which return when their work is done. Where
        one calls another, the time counts once."""
        self._runs = True
        for name in names:
            setattr(owner, name, self._timed(getattr(owner, name)))

    def begin(self, request: Hashable) -> None:
        """A request's first commit is made; a second call changes nothing."""
        self._first_ns.setdefault(request, self._spent_ns)

    def end(self, request: Hashable, prompt: int, tokens: int) -> dict[str, float]:
        """Its last is made, after a prompt of so many tokens: the counts that are told of it."""
        first_ns = self._first_ns.pop(request, self._spent_ns)
        context = {ATTENDED: float(attended(prompt, tokens))}
        return {**context, PASS_US: (self._spent_ns - first_ns) / 1e3} if self._runs else context

    def clear(self) -> None:
        """Forget every request."""
        self._first_ns.clear()

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            before, begin = self._spent_ns, time.perf_counter_ns()
            found = function(*args, **kwargs)
            # not added to: one of these calls inside another has been counted twice else
            self._spent_ns = before + time.perf_counter_ns() - begin
            return found

        return timed
