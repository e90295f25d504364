"""Steps that draft beside plain ones, by times chosen by hand."""

from __future__ import annotations

import pytest

from backends.engine.drafters.adaptive.drafts import AGED, EXPLORED, AdaptiveDrafts
from backends.engine.drafters.adaptive.pace import Pace
from backends.engine.streams import Stream
from tests.unit.backends.engine.drafters.test_adaptive import Chance, Priced, drafted, steady


class StepClock:
    """Time that passes as steps say."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


class Timed(Chance):
    """Takes `plain` microseconds for a step, and `drafting` where it drafts."""

    def __init__(self, most: int, clock: StepClock, plain: float, drafting: float) -> None:
        super().__init__(most)
        self.clock, self.plain, self.drafting = clock, plain, drafting
        self.told = 0

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        self.told += 1
        return super().verified(stream, accepted)


def steps(adaptive: AdaptiveDrafts, inner: Timed, count: int, of: int = 1) -> list[bool]:
    """Steps of some streams of which all drafts stand; whether each drafted."""
    found = []
    for _ in range(count):
        streams = [Stream(f"r{n}", (1,), 99, tokens=[1], done=[0], slot=n) for n in range(of)]
        adaptive.draft(streams)
        found.append(any(stream.drafts for stream in streams))
        inner.clock.ns += round(1e3 * (inner.drafting if found[-1] else inner.plain))
        for stream in streams:
            adaptive.verified(stream, stream.drafts)
    return found


@pytest.mark.parametrize(
    ("plain", "drafting", "drafts"),
    [
        (100.0, 580.0, True),
        (400.0, 2320.0, True),  # a slow machine, which is slow for both
        (400.0, 1500.0, True),
        (100.0, 1200.0, False),  # nine tokens for the time of twelve
        (20.0, 580.0, False),  # less than costs had said of plain steps
    ],
)
def test_steps_that_draft_are_held_against_plain_ones(
    plain: float, drafting: float, drafts: bool
) -> None:
    inner = Timed(8, clock := StepClock(), plain, drafting)
    adaptive = AdaptiveDrafts(inner, Priced(60), 1.0, Pace(clock))
    steps(adaptive, inner, 1500)
    assert (sum(steps(adaptive, inner, 500)) > 400) is drafts


def test_another_trial_may_find_that_a_comparison_went_wrong() -> None:
    inner = Timed(8, clock := StepClock(), 100.0, 3000.0)
    adaptive = AdaptiveDrafts(inner, Priced(10), 1.0, Pace(clock))
    steps(adaptive, inner, 1500)
    assert sum(steps(adaptive, inner, 500)) < 50
    inner.drafting = 180.0
    for _ in range(6):
        adaptive.reset()
        steps(adaptive, inner, 100)
    assert sum(steps(adaptive, inner, 500)) > 400


def test_so_does_a_trial_that_goes_on_for_long() -> None:
    inner = Timed(8, clock := StepClock(), 100.0, 3000.0)
    adaptive = AdaptiveDrafts(inner, Priced(10), 1.0, Pace(clock))
    steps(adaptive, inner, 1500)
    inner.drafting = 180.0
    assert not any(steps(adaptive, inner, 500))
    steps(adaptive, inner, 6 * AGED)
    assert sum(steps(adaptive, inner, 500)) > 400


def test_some_steps_that_another_process_stalls_turn_nothing_off() -> None:
    inner = Timed(8, clock := StepClock(), 100.0, 180.0)
    adaptive = AdaptiveDrafts(inner, Priced(10), 1.0, Pace(clock))
    inner.drafting = 900.0
    steps(adaptive, inner, 12)
    inner.drafting = 180.0
    assert sum(steps(adaptive, inner, 500)) > 400


def test_short_trials_do_not_forget_what_drafts_cost() -> None:
    """Nine tokens for the time of ten, where that of 5.8 had been said."""
    inner = Timed(8, clock := StepClock(), 100.0, 1000.0)
    adaptive = AdaptiveDrafts(inner, Priced(60), 1.0, Pace(clock))
    drafting = []
    for _ in range(40):
        adaptive.reset()
        drafting += steps(adaptive, inner, 130, of=32)
    assert sum(drafting) / len(drafting) < 0.1


def test_a_load_that_rises_is_looked_at_soon() -> None:
    inner = Timed(8, clock := StepClock(), 100.0, 580.0)
    adaptive = AdaptiveDrafts(inner, Priced(60), 1.0, Pace(clock))
    assert sum(steps(adaptive, inner, 5000)) > 4500
    inner.drafting = 1000.0
    assert sum(steps(adaptive, inner, 300, of=32)) < 20


def test_tries_stay_rare_where_the_number_of_streams_changes() -> None:
    inner = Timed(4, clock := StepClock(), 100.0, 100.0)
    adaptive = AdaptiveDrafts(inner, Priced(30), 0.0, Pace(clock))
    for number in range(2000):
        count = 8 + number % 2
        streams = [Stream(f"r{n}", (1,), 99, tokens=[1], done=[0], slot=n) for n in range(count)]
        adaptive.draft(streams)
        for stream in streams:
            adaptive.verified(stream, 0)
    assert 3 <= len(inner.asked) <= 2000 / EXPLORED + 1


def test_a_rest_that_is_left_does_not_hasten_what_is_forgotten() -> None:
    """Streams that come and go end each rest at once: 1,500 steps are not 4,096."""
    inner = Timed(8, clock := StepClock(), 100.0, 3000.0)
    adaptive = AdaptiveDrafts(inner, Priced(10), 1.0, Pace(clock))
    steps(adaptive, inner, 500, of=8)
    assert not any(any(steps(adaptive, inner, 1, of=8 + n % 2)) for n in range(1500))


def pace_of(times: list[tuple[int, list[int]]], pace: Pace, clock: StepClock) -> float:
    """After steps with so many drafts that took so many times what they should."""
    for drafts, factors in times:
        for factor in factors:
            pace.begin(1, drafts, 100.0, clock())
            clock.ns += factor * 100_000
            pace.end()
    pace.begin(1, 1, 100.0, clock())
    return pace.of(1)


def test_a_step_after_one_of_the_other_sort_is_not_looked_at() -> None:
    pace = Pace(clock := StepClock())
    once = [(0, [9, 1, 1, 1]), (2, [50, 2, 2, 2])]
    assert pace_of(once * 2, pace, clock) == 1.0, "one comparison says nothing yet"
    assert pace_of(once, pace, clock) == 2.0
    assert pace.of(40) == 2.0, "nothing else is known of so many"


def test_steps_before_a_pause_are_not_held_against_those_after_it() -> None:
    pace = Pace(clock := StepClock())
    once = [(0, [1, 1, 1, 1]), (2, [2, 2, 2, 2])]
    assert pace_of(once * 5, pace, clock) == 2.0
    for _ in range(9):
        pace_of([(2, [2, 2, 2, 2])], pace, clock)
        pace.stop()
        assert pace_of([(0, [9, 9, 9, 9, 9])], pace, clock) == 2.0


def test_while_off_it_asks_for_nothing_and_tells_of_ends_alone() -> None:
    inner = Timed(4, clock := StepClock(), 100.0, 600.0)
    adaptive = AdaptiveDrafts(inner, Priced(500), 0.8, Pace(clock))
    steps(adaptive, inner, 200)
    assert inner.asked == []
    assert inner.told == 0
    stream = Stream("r", (1,), 99, tokens=[1], done=[0], slot=0)
    adaptive.draft([stream])
    stream.finished = "stop"
    assert adaptive.verified(stream, 0) == {"told": 0}
    assert inner.told == 1


def test_what_a_try_has_to_read_is_paid_out_of_a_share_of_the_time() -> None:
    """A try reads 50 positions, 5,000 us: a hundredth of 5,000 steps of 100 us."""
    inner = Chance(4)
    adaptive = steady(inner, Priced(30, read_us=100.0), 0.0)
    stream = Stream("r", (1,) * 50, 10**6, tokens=[1] * 50, done=[49], slot=0)
    for _ in range(3000):
        drafted(adaptive, inner, [stream])
        del stream.tokens[50:]
        adaptive.verified(stream, 0)
    assert all(most == 0 for _, most in inner.asked)
    for _ in range(3000):
        drafted(adaptive, inner, [stream])
        del stream.tokens[50:]
        adaptive.verified(stream, 0)
    assert (1, 1) in inner.asked
