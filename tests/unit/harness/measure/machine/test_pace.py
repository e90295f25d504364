"""The fixed piece of work at both ends of a trial, on machines whose pace is made up."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from types import SimpleNamespace

import pytest

from harness.measure.machine import snapshots
from harness.measure.machine.noise import MAX_PROBE_RATIO
from harness.measure.machine.processors import ProcessorTime
from harness.measure.machine.snapshots import PROBE_ROUNDS, PROBE_S, RECENT, Pace

FAST = 0.001


class Machine:
    """Takes these seconds for a round, one after the other."""

    def __init__(self, rounds: Iterable[float]) -> None:
        self._rounds = iter(rounds)
        self.done = 0
        self.pace = Pace(self._round_s)

    def _round_s(self) -> float:
        self.done += 1
        return next(self._rounds)


def test_a_neighbour_that_comes_for_a_moment_is_waited_for() -> None:
    """A tenth of a second at half the pace, at the end behind the trial."""
    before = [FAST] * round(PROBE_S / FAST)
    burst = [2 * FAST] * 50
    machine = Machine(itertools.chain(before, burst, itertools.repeat(FAST)))
    assert machine.pace.undisturbed_s() == FAST
    machine.done = 0
    assert machine.pace.undisturbed_s() == FAST
    assert machine.done == len(burst) + 1


def test_a_neighbour_before_anything_is_known_is_waited_for() -> None:
    """The first probe has no pace to compare with: it looks for the whole time."""
    machine = Machine(itertools.chain([2 * FAST] * 100, itertools.repeat(FAST)))
    assert machine.pace.undisturbed_s() == FAST
    assert machine.done * FAST == pytest.approx(PROBE_S - 100 * FAST, abs=2 * FAST)


def test_a_pace_that_is_known_costs_a_few_rounds() -> None:
    machine = Machine(itertools.repeat(FAST))
    machine.pace.undisturbed_s()
    machine.done = 0
    machine.pace.undisturbed_s()
    assert machine.done == PROBE_ROUNDS


@pytest.mark.parametrize("slower", [1.25, 2.0, 1 / 1.25])
def test_a_pace_that_stays_another_is_told(slower: float) -> None:
    """Either way, and without end: clocks that changed, or a neighbour that stays."""
    before = [FAST] * round(PROBE_S / FAST)
    machine = Machine(itertools.chain(before, itertools.repeat(slower * FAST)))
    ends = sorted([machine.pace.undisturbed_s(), machine.pace.undisturbed_s()])
    assert ends[1] > MAX_PROBE_RATIO * ends[0]
    machine.done = 0
    machine.pace.undisturbed_s()
    assert machine.done * slower * FAST <= PROBE_S + 2 * slower * FAST


def test_one_slow_probe_is_not_the_machines_pace() -> None:
    """A neighbour over the whole of one probe does not make the next one take its pace for own."""
    fast, slow = [FAST] * round(PROBE_S / FAST), [2 * FAST] * round(PROBE_S / FAST)
    machine = Machine(itertools.chain(fast, slow[::2], slow[:50], itertools.repeat(FAST)))
    machine.pace.undisturbed_s()
    assert machine.pace.undisturbed_s() == 2 * FAST
    assert machine.pace.undisturbed_s() == FAST


def test_clocks_that_were_faster_for_a_while_are_not_looked_for_again_and_again() -> None:
    """A boost of a minute is over: some probes later its pace is not waited for any more."""
    boost = [FAST] * round(PROBE_S / FAST)
    machine = Machine(itertools.chain(boost, itertools.repeat(1.25 * FAST)))
    for _ in range(RECENT + 1):
        machine.pace.undisturbed_s()
    machine.done = 0
    assert machine.pace.undisturbed_s() == 1.25 * FAST
    assert machine.done == PROBE_ROUNDS


def test_what_is_counted_lies_on_the_loads_side_of_the_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A neighbour that is waited for takes no time of the trial's."""
    now_s = 0.0

    def wait() -> float:
        nonlocal now_s
        now_s += PROBE_S
        return FAST

    def stolen() -> ProcessorTime:
        return ProcessorTime(2 * now_s, 0.0, now_s)

    monkeypatch.setattr(snapshots, "_PACE", SimpleNamespace(undisturbed_s=wait))
    monkeypatch.setattr(snapshots, "processor_time", stolen)
    monkeypatch.setattr(snapshots, "held_s", lambda: now_s)
    before = snapshots.machine_state((), load_begins=True)
    after = snapshots.machine_state(())
    assert now_s == 2 * PROBE_S
    found = snapshots.disturbance(before, after)
    assert (found.stolen_share, found.held_share) == (0.0, 0.0)
