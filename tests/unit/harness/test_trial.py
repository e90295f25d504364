from __future__ import annotations

import gc
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.scripted import ScriptedBackend
from harness.core import BackendInfo, Commit, Generation, Load, Request
from harness.trial import Progress, TrialProtocolError, TrialTimeout, run_load
from tests.unit.harness.virtual_time import VirtualTime, install

MS = 1_000_000
CLOSED = Load("closed", concurrency=2)
OPEN = Load("constant", rate=1.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    return install(monkeypatch)


def requests(count: int, tokens: int = 4, arrivals: Iterable[float] = ()) -> list[Request]:
    times = [*arrivals] or [0.0] * count
    return [Request(f"r{i}", (1,), tokens, arrival_s=times[i]) for i in range(count)]


class Puppet:
    """Hands out what it was given, one list per poll; then finishes whatever is in flight."""

    def __init__(
        self, polls: Iterable[list[Commit]] = (), work: Callable[[], None] = lambda: None
    ) -> None:
        self.polls = deque(polls)
        self.work = work
        self.in_flight: list[str] = []
        self.most_in_flight = 0
        self.info = BackendInfo("puppet", "0", "simulation", {}, True)

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

    def close(self) -> None: ...


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
    class Slow(Puppet):
        def submit(self, request: Request) -> None:
            super().submit(request)
            clock.now_ns += 50 * MS

    found = run_load(Slow(), requests(3, arrivals=[0.0, 0.0, 0.0]), OPEN)
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
    monkeypatch.setattr("harness.trial.ALARM_GRACE_S", 0.05)

    def hang() -> None:
        try:
            time.sleep(600)
        except Exception:  # as engines do; must not swallow the alarm
            hang()

    polls = [[Commit("r0", (1, 2))]]
    backend = Puppet(polls)
    backend.work = lambda: None if backend.polls else hang()
    with pytest.raises(TrialTimeout) as caught:
        run_load(backend, requests(2), CLOSED, time_limit_s=0.05)
    assert [g.token_ids for g in caught.value.generations] == [[1, 2], []]


def test_the_limit_holds_outside_the_main_thread() -> None:
    caught: list[BaseException] = []

    def load() -> None:
        try:
            run_load(ScriptedBackend({"ttft_s": 60.0}), requests(1), CLOSED, time_limit_s=0.05)
        except TrialTimeout as timeout:
            caught.append(timeout)

    thread = threading.Thread(target=load)
    thread.start()
    thread.join(30)
    assert len(caught) == 1


def test_progress_is_told_now_and_then(clock: VirtualTime) -> None:
    told: list[Progress] = []
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


class Remote(Puppet):
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
    backend = Remote()
    (generation,) = run_load(backend, requests(1), CLOSED)
    assert generation.finished == "stop"
    assert 1 <= backend.empty_polls < 30
