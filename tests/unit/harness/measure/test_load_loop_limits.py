"""The load loop and backends that break the contract, hang or wait; what it leaves alone."""

from __future__ import annotations

import gc
import random
import signal
import threading
import time
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.scripted import ScriptedBackend
from harness.core.nouns import Commit, Generation, Load, Request
from harness.measure.load_loop import LoadProgress, TrialTimeout, run_load
from harness.measure.protocol import TrialProtocolError
from tests.support.harness.puppet import CLOSED, OPEN, Puppet, requests
from tests.support.harness.virtual_time import VirtualTime, install


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    return install(monkeypatch)


@pytest.mark.parametrize(
    ("polls", "message"),
    [
        ([[Commit("r9", (1,))]], "committed for request 'r9', which was never submitted"),
        (
            [[Commit("r0", (1,), "stop")], [Commit("r0", (2,))]],
            "committed for request 'r0', which has already finished",
        ),
        (
            [[Commit("r0", (1,), "stop"), Commit("r0", (2,))]],
            "committed for request 'r0', which has already finished",
        ),
        ([[Commit("r0", (1, 2, 3, 4, 5))]], "request 'r0': 5 tokens committed, 4 asked for"),
        (
            [[Commit("r0", (1,), cast(Any, "eos"))]],
            "ended with 'eos'; expected one of: error, length",
        ),
        (
            [[Commit("r0", (1, 2))], [Commit("r0", (3, 4, 5), "length")]],
            "request 'r0': 5 tokens committed, 4 asked for",
        ),
    ],
)
def test_a_backend_that_breaks_the_contract_is_refused(
    clock: VirtualTime, polls: list[list[Commit]], message: str
) -> None:
    with pytest.raises(TrialProtocolError, match=message):
        run_load(Puppet(polls), requests(2), CLOSED)


def test_nothing_may_follow_a_stop_token(clock: VirtualTime) -> None:
    request = Request("r0", (1,), 8, stop_ids=(2,))
    polls = [[Commit("r0", (1, 2, 3), "length")]]
    with pytest.raises(TrialProtocolError, match="1 tokens follow the stop token at 1"):
        run_load(Puppet(polls), [request], CLOSED)
    deaf = Request("r0", (1,), 8, stop_ids=(2,), ignore_eos=True)
    assert run_load(Puppet(polls), [deaf], CLOSED)[0].token_ids == [1, 2, 3]
    ends = [[Commit("r0", (1, 2), "stop")]]
    assert run_load(Puppet(ends), [request], CLOSED)[0].finished == "stop"


def test_what_the_backend_raises_passes_through(clock: VirtualTime) -> None:
    def broken() -> None:
        raise KeyError("kv")

    with pytest.raises(KeyError, match="kv"):
        run_load(Puppet(work=broken), requests(2), CLOSED)


@pytest.mark.parametrize("concurrency", [None, 0, -1])
def test_a_closed_loop_needs_places(concurrency: int | None) -> None:
    with pytest.raises(ValueError, match="concurrency of at least 1"):
        run_load(Puppet(), requests(1), Load("closed", concurrency=concurrency))


def test_request_ids_are_unique() -> None:
    with pytest.raises(ValueError, match="'r0' occurs 2 times"):
        run_load(Puppet(), [*requests(2), *requests(1)], CLOSED)


def test_past_the_time_limit_the_partial_generations_are_kept(clock: VirtualTime) -> None:
    backend = ScriptedBackend({"ttft_s": 0.1, "itl_s": 1.0})
    with pytest.raises(TrialTimeout) as caught:
        run_load(backend, requests(3), CLOSED, time_limit_s=1.5)
    found = caught.value.generations
    assert [(g.request_id, g.finished, len(g.token_ids)) for g in found] == [
        ("r0", None, 2),
        ("r1", None, 2),
    ]
    assert "time limit of 1.5 s" in str(caught.value)


def test_a_hanging_call_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.measure.timed_window.ALARM_GRACE_S", 0.05)

    def hang() -> None:
        try:
            time.sleep(600)
        except Exception:  # as engines do; must not swallow the alarm
            hang()

    polls = [[Commit("r0", (1, 2))]]
    backend = Puppet(polls)
    backend.work = lambda: None if backend.polls else hang()
    with pytest.raises(TrialTimeout) as caught:
        run_load(backend, requests(2), CLOSED, time_limit_s=2.5)
    assert [g.token_ids for g in caught.value.generations] == [[1, 2], []]


def test_the_alarm_ends_with_the_load() -> None:
    """Or it would interrupt what comes after it: another trial, a write to the disk."""
    before = signal.getsignal(signal.SIGALRM)
    run_load(Puppet(), requests(1), CLOSED, time_limit_s=600.0)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_the_limit_holds_outside_the_main_thread() -> None:
    caught: list[BaseException] = []

    def load() -> None:
        try:
            run_load(ScriptedBackend({"ttft_s": 60.0}), requests(1), CLOSED, time_limit_s=0.05)
        except TrialTimeout as timeout:
            caught.append(timeout)

    thread = threading.Thread(target=load)
    thread.start()
    thread.join(300)
    assert len(caught) == 1


def test_progress_is_told_now_and_then(clock: VirtualTime) -> None:
    told: list[LoadProgress] = []
    backend = ScriptedBackend({"ttft_s": 0.5, "itl_s": 0.5})
    run_load(backend, requests(4), CLOSED, on_progress=told.append)
    assert (told[0].done, told[0].total, told[0].tokens) == (0, 4, 0)
    # 4 s of load, told every 200 ms
    assert 18 <= len(told) <= 21
    assert [p.tokens for p in told] == sorted(p.tokens for p in told)
    assert 2 <= told[-1].done <= 4


def test_waiting_leaves_the_core_to_others(clock: VirtualTime) -> None:
    """A second without anything to do is slept through, and so is nearly all of a slow answer."""
    before = clock.now_ns
    backend = ScriptedBackend({"ttft_s": 1.0, "tokens": 1})
    run_load(backend, requests(2, arrivals=[0.0, 2.0]), OPEN)
    assert clock.naps_ns > 0.95 * (clock.now_ns - before)
    assert clock.reads < 70_000


def test_what_there_is_to_collect_is_collected_before_the_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: done.append("collected"))
    run_load(Puppet(work=lambda: done.append("worked")), requests(1), CLOSED)
    assert done == ["collected", "worked"]


def test_the_collector_rests_during_the_load_and_only_then() -> None:
    seen: list[bool] = []
    run_load(Puppet(work=lambda: seen.append(gc.isenabled())), requests(1), CLOSED)
    assert seen == [False]
    assert gc.isenabled()
    with pytest.raises(TrialProtocolError):
        run_load(Puppet([[Commit("x", ())]]), requests(1), CLOSED)
    assert gc.isenabled()
    gc.disable()
    try:
        run_load(Puppet(), requests(1), CLOSED)
        assert not gc.isenabled()
    finally:
        gc.enable()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.integers(1, 6), st.integers(1, 25))
def test_nothing_is_lost_or_made_up(seed: int, is_open: bool, places: int, count: int) -> None:
    """Whatever order and pieces a backend commits in, the generations add up to what it gave."""
    draw = random.Random(seed)
    given_out: dict[str, list[int]] = {}

    class Erratic(Puppet):
        def poll(self) -> list[Commit]:
            commits = []
            for name in list(self.in_flight):
                if draw.random() < 0.5:
                    continue
                so_far = given_out.setdefault(name, [])
                new = [draw.randrange(9) for _ in range(draw.randint(0, 8 - len(so_far)))]
                so_far += new
                ends = len(so_far) == 8 or draw.random() < 0.2
                if ends:
                    self.in_flight.remove(name)
                commits.append(Commit(name, tuple(new), "length" if ends else None))
            return commits

    arrivals = [draw.random() * 0.002 for _ in range(count)]
    backend = Erratic()
    load = OPEN if is_open else Load("closed", concurrency=places)
    found = run_load(backend, requests(count, 8, arrivals), load)
    assert [g.request_id for g in found] == [f"r{i}" for i in range(count)]
    for generation in found:
        check_consistent(generation)
        assert generation.token_ids == given_out[generation.request_id]
    if not is_open:
        assert backend.most_in_flight <= places


def check_consistent(generation: Generation) -> None:
    assert generation.finished == "length"
    assert sum(generation.commit_tokens) == len(generation.token_ids)
    assert len(generation.commit_ns) == len(generation.commit_tokens)
    assert 0 not in generation.commit_tokens
    assert generation.commit_ns == sorted(generation.commit_ns)
    assert generation.scheduled_ns <= generation.submitted_ns
    assert all(ns >= generation.submitted_ns for ns in generation.commit_ns)
    assert generation.client_lag_ns >= 0


class WakingPuppet(Puppet):
    """Its answers come from another thread, which wakes whoever waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self.news = threading.Event()
        self.empty_polls = 0

    def submit(self, request: Request) -> None:
        super().submit(request)
        threading.Timer(0.05, self.news.set).start()

    def poll(self) -> list[Commit]:
        if not self.news.is_set():
            self.empty_polls += 1
            return []
        self.news.clear()
        return super().poll()

    def wait(self, timeout_s: float) -> None:
        self.news.wait(timeout_s)


def test_a_backend_that_can_wait_is_not_polled_in_vain() -> None:
    """Napping, the loop would poll some hundred times until the first answer."""
    backend = WakingPuppet()
    (generation,) = run_load(backend, requests(1), CLOSED)
    assert generation.finished == "stop"
    assert 1 <= backend.empty_polls < 30
