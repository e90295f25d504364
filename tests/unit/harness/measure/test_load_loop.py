"""The load loop: what is submitted when, and what each stamp means."""

from __future__ import annotations

import pytest

from backends.scripted import ScriptedBackend
from harness.core.nouns import Commit, Load, Request
from harness.measure.load_loop import run_load
from tests.support.harness.puppet import CLOSED, MS, OPEN, Puppet, requests
from tests.support.harness.virtual_time import VirtualTime, install


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    return install(monkeypatch)


def test_open_loop_submits_on_time_and_counts_from_the_schedule(clock: VirtualTime) -> None:
    arrivals = [0.0, 0.5, 0.5, 2.0]
    backend = ScriptedBackend({"ttft_s": 0.1, "itl_s": 0.05})
    found = run_load(backend, requests(4, arrivals=arrivals), OPEN)
    start = found[0].scheduled_ns
    assert [g.scheduled_ns - start for g in found] == [0, 500 * MS, 500 * MS, 2000 * MS]
    for generation in found:
        assert 0 <= generation.submitted_ns - generation.scheduled_ns < MS
        assert 0 <= generation.client_lag_ns < MS
        offsets = [ns - generation.scheduled_ns for ns in generation.commit_ns]
        for offset, due in zip(offsets, (100, 150, 200, 250), strict=True):
            assert due * MS <= offset < due * MS + MS // 2
        assert generation.commit_tokens == [1, 1, 1, 1]
        assert len(generation.token_ids) == 4
        assert generation.finished == "length"


def test_what_one_poll_hands_out_in_parts_is_one_commit(clock: VirtualTime) -> None:
    """A proxy that holds a stream back delivers every chunk at once: there is no time between
    them, so the time per token is undefined and not 0."""
    chunks = [
        Commit("r0", (1,)),
        Commit("r0", (2, 3)),
        Commit("r0", (4,)),
        Commit("r0", (), "stop"),
    ]
    (found,) = run_load(Puppet([chunks]), requests(1), CLOSED)
    assert found.commit_tokens == [4]
    assert len(found.commit_ns) == 1
    assert found.token_ids == [1, 2, 3, 4]
    assert found.finished == "stop"


def test_unsorted_arrivals_are_submitted_in_time_and_returned_in_request_order(
    clock: VirtualTime,
) -> None:
    found = run_load(ScriptedBackend({}), requests(3, arrivals=[0.3, 0.1, 0.2]), OPEN)
    assert [g.request_id for g in found] == ["r0", "r1", "r2"]
    assert found[1].submitted_ns < found[2].submitted_ns < found[0].submitted_ns


def test_a_blocking_poll_is_the_systems_lateness_not_the_clients(clock: VirtualTime) -> None:
    """Due in the middle of a 300 ms engine step: late by 200 ms, none of it the harness's."""

    def step() -> None:
        clock.now_ns += 300 * MS

    found = run_load(Puppet(work=step), requests(2, arrivals=[0.0, 0.1]), OPEN)
    assert 200 * MS <= found[1].submitted_ns - found[1].scheduled_ns < 201 * MS
    assert found[1].client_lag_ns < MS // 10
    assert found[1].commit_ns[0] - found[1].scheduled_ns >= 500 * MS


def test_a_blocking_poll_with_nothing_to_hand_out_counts_alike(clock: VirtualTime) -> None:
    """An engine step that only reads prompts returns nothing, and blocks all the same."""

    def step() -> None:
        clock.now_ns += 300 * MS

    found = run_load(Puppet([[]], step), requests(2, arrivals=[0.0, 0.1]), OPEN)
    assert found[1].client_lag_ns < MS // 10


def test_a_slow_submit_is_not_the_clients_lateness(clock: VirtualTime) -> None:
    class SlowPuppet(Puppet):
        def submit(self, request: Request) -> None:
            super().submit(request)
            clock.now_ns += 50 * MS

    found = run_load(SlowPuppet(), requests(3, arrivals=[0.0, 0.0, 0.0]), OPEN)
    lags = [g.submitted_ns - g.scheduled_ns for g in found]
    assert [round(lag / MS) for lag in lags] == [0, 50, 100]
    assert max(g.client_lag_ns for g in found) < MS // 10


def test_the_harness_own_lateness_is_seen(clock: VirtualTime) -> None:
    """A nap that lasts 20 ms too long is the client's fault and is counted as such."""
    nap = clock.sleep

    def oversleep(seconds: float) -> None:
        nap(seconds)
        clock.now_ns += 20 * MS

    clock.sleep = oversleep  # type: ignore[method-assign]
    found = run_load(Puppet(), requests(2, arrivals=[0.0, 1.01]), OPEN)
    assert 20 * MS <= found[1].client_lag_ns < 21 * MS
    assert found[1].submitted_ns - found[1].scheduled_ns == found[1].client_lag_ns


def test_closed_loop_keeps_the_places_full(clock: VirtualTime) -> None:
    backend = Puppet()
    found = run_load(backend, requests(9), Load("closed", concurrency=4))
    assert backend.most_in_flight == 4
    assert len(found) == 9
    assert all(g.scheduled_ns == g.submitted_ns for g in found)
    assert max(g.client_lag_ns for g in found) < MS // 10


def test_more_places_than_requests(clock: VirtualTime) -> None:
    backend = Puppet()
    assert len(run_load(backend, requests(3), Load("closed", concurrency=64))) == 3
    assert backend.most_in_flight == 3


def test_no_requests_no_generations() -> None:
    assert run_load(Puppet(), [], CLOSED) == []


def test_commits_are_stamped_when_their_poll_returns(clock: VirtualTime) -> None:
    polls = [
        [Commit("r0", (1, 2), telemetry={"drafted": 3, "accepted": 1})],
        [],
        [Commit("r0", ()), Commit("r1", (5,))],
        [
            Commit("r0", (3,), "stop", {"drafted": 3, "accepted": 0}),
            Commit("r1", (), "error", error="the connection was closed"),
        ],
    ]
    first, second = run_load(Puppet(polls), requests(2), CLOSED)
    assert first.commit_tokens == [2, 1]
    assert first.token_ids == [1, 2, 3]
    assert first.finished == "stop"
    assert first.telemetry == {"drafted": 6, "accepted": 1}
    assert len(second.commit_ns) == 1
    assert (second.finished, second.error) == ("error", "the connection was closed")
    assert first.commit_ns[0] < second.commit_ns[0] < first.commit_ns[1]


def test_a_failed_request_frees_its_place(clock: VirtualTime) -> None:
    backend = ScriptedBackend({"fail_ids": ["r0", "r2"]})
    found = run_load(backend, requests(4), Load("closed", concurrency=1))
    assert [g.finished for g in found] == ["error", "length", "error", "length"]
    assert [len(g.token_ids) for g in found] == [1, 4, 1, 4]
    assert found[0].error == "scripted failure"
