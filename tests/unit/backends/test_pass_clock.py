from __future__ import annotations

import pytest

from backends.pass_clock import PassClock
from harness.core.names import ATTENDED, PASS_US


class Passing:
    """Methods that take so many microseconds of a clock that the test turns."""

    now_ns = 0

    def short(self, number: int) -> int:
        Passing.now_ns += 1_000
        return number

    def long(self) -> int:
        Passing.now_ns += 5_000
        return self.short(number=7)


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Passing:
    monkeypatch.setattr(Passing, "now_ns", 0)
    monkeypatch.setattr("backends.pass_clock.time.perf_counter_ns", lambda: Passing.now_ns)
    return Passing()


def test_a_request_is_told_what_ran_between_its_first_and_last_commit(passing: Passing) -> None:
    clock = PassClock()
    clock.watch(passing, "short", "long")
    assert passing.short(3) == 3
    clock.begin("a")
    assert passing.short(4) == 4
    clock.begin("b")
    clock.begin("a")
    passing.short(5)
    assert clock.end("a", prompt=10, tokens=3) == {ATTENDED: 11 + 12, PASS_US: 2.0}
    assert clock.end("b", prompt=1, tokens=1) == {ATTENDED: 0, PASS_US: 1.0}
    assert clock.end("b", prompt=1, tokens=1)[PASS_US] == 0


def test_a_call_inside_another_counts_once(passing: Passing) -> None:
    clock = PassClock()
    clock.watch(passing, "short", "long")
    clock.begin("a")
    assert passing.long() == 7
    assert clock.end("a", 1, 2)[PASS_US] == 6.0


def test_what_failed_is_forgotten_and_requests_can_be(passing: Passing) -> None:
    clock = PassClock()
    clock.watch(passing, "short")
    clock.begin("a")
    with pytest.raises(TypeError):
        passing.short()  # type: ignore[call-arg]
    passing.short(1)
    clock.clear()
    passing.short(2)
    assert clock.end("a", 1, 2)[PASS_US] == 0


def test_without_anything_to_watch_no_time_is_told() -> None:
    clock = PassClock()
    clock.begin("a")
    assert clock.end("a", 2, 2) == {ATTENDED: 3}
