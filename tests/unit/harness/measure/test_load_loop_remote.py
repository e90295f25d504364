"""A backend whose work is done elsewhere: its commits are stamped where they arrive, and every
moment between schedule and wire is the harness's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest

from harness.core.names import SERVER
from harness.core.nouns import BackendInfo, Commit, Load, Request
from harness.measure.load_loop import SUBMITTED_AT_ONCE, run_load
from tests.support.harness.puppet import CLOSED, MS, OPEN, Puppet, requests
from tests.support.harness.virtual_time import VirtualTime, install


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    return install(monkeypatch)


class ServerPuppet(Puppet):
    """Says of itself that it is a server."""

    def __init__(
        self, polls: Iterable[list[Commit]] = (), work: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(polls, work)
        self.info = BackendInfo("remote", "0", "simulation", {}, False, frozenset({SERVER}))


def test_a_commit_is_stamped_with_its_arrival(clock: VirtualTime) -> None:
    begin = clock.now_ns
    polls = [
        [
            Commit("r0", (1,), arrived_ns=begin + 100 * MS),
            Commit("r0", (2,), arrived_ns=begin + 103 * MS),
        ],
        [Commit("r0", (3,), "stop", arrived_ns=begin + 104 * MS, stamp_lag_ns=7)],
    ]

    def late() -> None:
        clock.now_ns += 150 * MS

    (found,) = run_load(ServerPuppet(polls, late), requests(1), CLOSED)
    assert found.commit_ns == [begin + 100 * MS, begin + 103 * MS, begin + 104 * MS]
    assert found.commit_tokens == [1, 1, 1]
    assert found.stamp_lag_ns == [0, 0, 7]


def test_what_arrives_at_one_moment_is_one_commit_with_the_greatest_doubt(
    clock: VirtualTime,
) -> None:
    at = clock.now_ns + MS
    commits = [
        Commit("r0", (1,), arrived_ns=at, stamp_lag_ns=2),
        Commit("r0", (2, 3), arrived_ns=at, stamp_lag_ns=9),
        Commit("r0", (4,), "stop", arrived_ns=at - 1, stamp_lag_ns=3),
    ]
    clock.now_ns += 5 * MS
    (found,) = run_load(ServerPuppet([commits]), requests(1), CLOSED)
    assert (found.commit_ns, found.commit_tokens) == ([at], [4])
    assert found.stamp_lag_ns == [9]


def test_no_stamp_lies_in_the_future(clock: VirtualTime) -> None:
    """A step of the wall clock between two reads must not move a stamp beyond the poll."""
    polls = [[Commit("r0", (1,), "stop", arrived_ns=clock.now_ns + 10_000 * MS)]]
    (found,) = run_load(ServerPuppet(polls), requests(1), CLOSED)
    assert found.commit_ns[0] <= clock.now_ns


def test_open_loop_lateness_counts_from_the_schedule_to_the_wire(clock: VirtualTime) -> None:
    """The poll before it took 20 ms: for a server that is the client's own work."""

    def parse() -> None:
        clock.now_ns += 20 * MS

    found = run_load(ServerPuppet(work=parse), requests(2, arrivals=[0.0, 0.01]), OPEN)
    assert 10 * MS <= found[1].client_lag_ns < 11 * MS
    sent = [Commit("r0", (1,), "stop", arrived_ns=clock.now_ns, sent_ns=clock.now_ns + 40 * MS)]
    (found_late,) = run_load(ServerPuppet([sent]), requests(1, arrivals=[0.0]), OPEN)
    assert 39 * MS <= found_late.client_lag_ns <= 40 * MS


def test_closed_loop_lateness_counts_from_the_end_of_the_answer_that_made_room(
    clock: VirtualTime,
) -> None:
    ended = clock.now_ns + 2 * MS
    polls = [[Commit("r0", (1,), "stop", arrived_ns=ended)], [Commit("r1", (1,), "stop")]]

    def parse() -> None:
        clock.now_ns += 30 * MS

    found = run_load(ServerPuppet(polls, parse), requests(2), Load("closed", concurrency=1))
    assert found[0].client_lag_ns < MS
    assert 27 * MS < found[1].client_lag_ns < 30 * MS


def test_a_burst_is_sent_in_parts_with_a_look_at_the_sockets_between(clock: VirtualTime) -> None:
    count = 2 * SUBMITTED_AT_ONCE + 1
    submitted: list[int] = []
    backend = ServerPuppet()
    backend.work = lambda: submitted.append(len(backend.in_flight))
    backend.polls.extend([[], [], []])
    found = run_load(backend, requests(count, arrivals=[0.0] * count), OPEN)
    assert submitted[:3] == [SUBMITTED_AT_ONCE, 2 * SUBMITTED_AT_ONCE, count]
    assert all(generation.finished for generation in found)


def test_preparation_comes_before_the_clock(clock: VirtualTime) -> None:
    class Prepared(ServerPuppet):
        def prepare(self, requests: Sequence[Request], load: Load) -> None:
            clock.now_ns += 500 * MS
            self.prepared = [request.id for request in requests], load

    backend = Prepared()
    found = run_load(backend, requests(2, arrivals=[0.0, 0.0]), OPEN)
    assert backend.prepared == (["r0", "r1"], OPEN)
    assert max(g.client_lag_ns for g in found) < MS
