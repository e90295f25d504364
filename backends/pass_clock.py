"""How long a model runs, as opposed to the engine around it: what explains the time of a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any

from harness.core.names import ATTENDED, PASS_US, attended


class PassClock:
    """The time that passes through a model, and other work that is watched, have taken so far, and
    what each request under way had to wait for. It enters no latency."""

    def __init__(self) -> None:
        self._spent_ns: dict[str, int] = {}
        """By count."""
        self._first_ns: dict[Hashable, dict[str, int]] = {}
        """By request: what had been spent when its first commit came."""

    def watch(self, owner: Any, *names: str, count: str = PASS_US) -> None:
        """Take the time of these methods of `owner`, which return when their work is done, into one
        count. Where one calls another of the same count, the time counts once."""
        self._spent_ns[count] = 0
        for name in names:
            setattr(owner, name, self._timed(getattr(owner, name), count))

    def begin(self, request: Hashable) -> None:
        """A request's first commit is made; a second call changes nothing."""
        if request not in self._first_ns:
            self._first_ns[request] = dict(self._spent_ns)

    def end(self, request: Hashable, prompt: int, tokens: int) -> dict[str, float]:
        """Its last is made, after a prompt of so many tokens: the counts that are told of it."""
        first_ns = self._first_ns.pop(request, self._spent_ns)
        spent = {name: (ns - first_ns[name]) / 1e3 for name, ns in self._spent_ns.items()}
        return {ATTENDED: float(attended(prompt, tokens)), **spent}

    def clear(self) -> None:
        """Forget every request."""
        self._first_ns.clear()

    def _timed(self, function: Callable[..., Any], count: str) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            before, begin = self._spent_ns[count], time.perf_counter_ns()
            found = function(*args, **kwargs)
            # not added to: one of these calls inside another has been counted twice else
            self._spent_ns[count] = before + time.perf_counter_ns() - begin
            return found

        return timed
