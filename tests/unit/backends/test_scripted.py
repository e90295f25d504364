from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import check_options, open_backend
from backends.scripted import ScriptedBackend, _unwarp, _warp
from harness.core.backend import Backend
from harness.core.errors import UserError
from harness.core.nouns import Commit, Generation, Load, Model, Request
from harness.measure.load_loop import run_load
from tests.support.harness.virtual_time import VirtualTime, install

ROOT = Path(__file__).parents[3]
MS = 1_000_000
OPEN = Load("constant", rate=1.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    return install(monkeypatch)


def open_scripted(**options: Any) -> Backend:
    return open_backend("scripted", None, Model("none"), options)


def generate(
    count: int = 1,
    tokens: int = 6,
    load: Load = OPEN,
    arrivals: tuple[float, ...] = (),
    **script: Any,
) -> list[Generation]:
    times = arrivals or (0.0,) * count
    requests = [Request(f"r{i}", (1,), tokens, arrival_s=t) for i, t in enumerate(times)]
    return run_load(open_scripted(**script), requests, load)


def offsets_ms(generation: Generation) -> list[int]:
    """Commit times after the schedule, in whole milliseconds; the clock's own steps are less."""
    return [(ns - generation.scheduled_ns) // MS for ns in generation.commit_ns]


def test_tokens_come_on_schedule(clock: VirtualTime) -> None:
    [found] = generate(ttft_s=0.1, itl_s=0.01)
    assert offsets_ms(found) == [100, 110, 120, 130, 140, 150]
    assert found.commit_tokens == [1] * 6
    assert found.finished == "length"


def test_a_schedule_of_gaps_repeats(clock: VirtualTime) -> None:
    [found] = generate(ttft_s=0.1, itl_schedule_s=[0.01, 0.05])
    assert offsets_ms(found) == [100, 110, 160, 170, 220, 230]


def test_several_tokens_in_a_commit(clock: VirtualTime) -> None:
    [found] = generate(tokens=7, ttft_s=0.1, itl_s=0.01, tokens_per_commit=3)
    assert found.commit_tokens == [3, 3, 1]
    assert offsets_ms(found) == [100, 110, 120]


def test_shorter_answers_end_by_stop(clock: VirtualTime) -> None:
    [found] = generate(tokens=6, tokens_per_commit=2)
    assert (len(found.token_ids), found.finished) == (6, "length")
    backend = open_scripted(tokens=3)
    [short] = run_load(backend, [Request("r0", (1,), 6)], OPEN)
    assert (len(short.token_ids), short.finished) == (3, "stop")
    [capped] = run_load(open_scripted(tokens=30), [Request("r0", (1,), 6)], OPEN)
    assert (len(capped.token_ids), capped.finished) == (6, "length")


def test_drafts_are_counted_and_the_bonus_token_comes_with_them(clock: VirtualTime) -> None:
    [found] = generate(tokens=9, drafted=4, accepted=[2, 0, 3])
    assert found.commit_tokens == [1, 3, 1, 4]
    assert found.telemetry == {"steps": 3, "drafted": 12, "accepted": 5}


def test_requests_queue_for_the_capacity_in_order(clock: VirtualTime) -> None:
    found = generate(4, tokens=2, ttft_s=0.1, itl_s=0.05, capacity=2)
    assert [offsets_ms(g) for g in found] == [[100, 150], [100, 150], [250, 300], [250, 300]]


def test_everything_stands_still_during_a_stall(clock: VirtualTime) -> None:
    """The second request arrives inside the stall; its work begins when the stall is over."""
    stalls = [{"at_s": 0.125, "for_s": 1.0}]
    first, second = generate(tokens=3, ttft_s=0.1, itl_s=0.05, stalls=stalls, arrivals=(0.0, 0.5))
    assert offsets_ms(first) == [100, 1150, 1200]
    assert offsets_ms(second) == [625 + 100, 775, 825]


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), max_size=4),
    st.integers(0, 10**10),
)
def test_work_time_and_wall_time_are_inverse(gaps: list[tuple[int, int]], work: int) -> None:
    stalls, now = [], 0
    for gap, duration in gaps:
        stalls.append((now + gap, duration))
        now += gap + duration
    assert _unwarp(_warp(work, stalls), stalls) == work
    assert _warp(work, stalls) >= work


def test_what_is_due_as_a_stall_begins_still_comes_and_what_is_due_later_waits() -> None:
    stalls = [(100, 50), (400, 7)]
    assert [_warp(work, stalls) for work in (99, 100, 101, 350, 351)] == [99, 100, 151, 400, 408]


def test_token_ids_are_the_same_whenever_asked(clock: VirtualTime) -> None:
    first, again = generate(20), generate(20, ttft_s=0.5)
    assert [g.token_ids for g in first] == [g.token_ids for g in again]
    assert len({tuple(g.token_ids) for g in first}) == 20
    other = generate(20, seed=1)
    assert all(a.token_ids != b.token_ids for a, b in zip(first, other, strict=True))
    assert all(0 <= token < 16 for g in generate(20, vocabulary=16) for token in g.token_ids)


def test_divergence_begins_where_it_is_asked_for(clock: VirtualTime) -> None:
    plain, other = generate(50), generate(50, diverge_at=4)
    for a, b in zip(plain, other, strict=True):
        assert a.token_ids[:4] == b.token_ids[:4]
        assert a.token_ids[4] != b.token_ids[4]
    some = generate(200, diverge_at=4, diverge_fraction=0.25)
    whole = generate(200)
    different = sum(a.token_ids != b.token_ids for a, b in zip(whole, some, strict=True))
    assert 25 <= different <= 75


def test_no_stop_token_before_the_end(clock: VirtualTime) -> None:
    """Made-up tokens must not look like the end of the answer to the load loop."""
    stops = tuple(range(12))
    requests = [Request(f"r{i}", (1,), 50, stop_ids=stops) for i in range(20)]
    found = run_load(open_scripted(vocabulary=16), requests, OPEN)
    assert all(set(g.token_ids).isdisjoint(stops) for g in found)
    assert all(len(g.token_ids) == 50 for g in found)


def test_chosen_requests_fail_after_their_first_commit(clock: VirtualTime) -> None:
    found = generate(4, fail_ids=["r1"])
    assert [g.finished for g in found] == ["length", "error", "length", "length"]
    assert (len(found[1].token_ids), found[1].error) == (1, "scripted failure")
    many = generate(300, fail_fraction=0.2)
    failed = [g.request_id for g in many if g.finished == "error"]
    assert 30 <= len(failed) <= 90
    again = generate(300, fail_fraction=0.2, ttft_s=0.3)
    assert [g.request_id for g in again if g.finished == "error"] == failed


def test_who_fails_and_who_diverges_are_drawn_apart(clock: VirtualTime) -> None:
    failed = {g.request_id for g in generate(300, fail_fraction=0.5) if g.finished == "error"}
    plain = {g.request_id: g.token_ids for g in generate(300)}
    other = generate(300, diverge_at=0, diverge_fraction=0.5)
    diverged = {g.request_id for g in other if g.token_ids != plain[g.request_id]}
    assert 100 < len(failed) < 200
    assert 100 < len(diverged) < 200
    assert failed - diverged
    assert diverged - failed


def test_a_one_commit_answer_can_fail_too(clock: VirtualTime) -> None:
    [found] = generate(tokens=2, tokens_per_commit=8, fail_ids=["r0"])
    assert (found.finished, len(found.token_ids)) == ("error", 2)


def test_zero_work_hands_out_one_commit_of_each_request_per_poll() -> None:
    backend = open_scripted(zero_work=True)
    for i in range(3):
        backend.submit(Request(f"r{i}", (1,), 2))
    first, second = backend.poll(), backend.poll()
    assert [c.request_id for c in first] == ["r0", "r1", "r2"]
    assert [c.finished for c in second] == ["length"] * 3
    assert backend.poll() == []


def test_reset_forgets_requests_queue_and_start(clock: VirtualTime) -> None:
    backend = open_scripted(ttft_s=0.1, capacity=1, stalls=[{"at_s": 0.05, "for_s": 0.5}])
    backend.submit(Request("old", (1,), 2))
    clock.now_ns += 5000 * MS
    backend.reset()
    begin = clock.now_ns
    backend.submit(Request("new", (1,), 1))
    commits: list[Commit] = []
    while not commits:
        clock.now_ns += MS
        commits = backend.poll()
    assert [c.request_id for c in commits] == ["new"]
    assert (clock.now_ns - begin) // MS == 600


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [("raise", RuntimeError, "scripted to fail"), ("out_of_memory", MemoryError, "scripted")],
)
def test_faults_come_after_so_many_commits(
    clock: VirtualTime, fault: str, error: type[Exception], message: str
) -> None:
    backend = open_scripted(fault=fault, fault_after=3)
    backend.submit(Request("r0", (1,), 10))
    handed = 0
    while handed < 3:
        clock.now_ns += MS
        handed += len(backend.poll())
    assert handed == 3
    with pytest.raises(error, match=message):
        backend.poll()
    backend.reset()
    assert backend.poll() == [], "they are counted anew"


def test_kill_is_a_real_kill() -> None:
    code = (
        "from backends import open_backend; from harness.core.nouns import Model;"
        "open_backend('scripted', None, Model('none'), {'fault': 'kill'}).poll()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ})
    assert done.returncode == -signal.SIGKILL


def test_a_fault_at_the_start() -> None:
    with pytest.raises(RuntimeError, match="at the start"):
        open_scripted(fault="start")


def test_info_says_simulation() -> None:
    backend = open_scripted(ttft_s=0.5)
    assert backend.info.provenance == "simulation"
    assert (backend.info.options["ttft_s"], backend.info.options["itl_s"]) == (0.5, 0.005)
    assert not ScriptedBackend.needs_model
    backend.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tfft_s": 1.0}, "unknown option 'tfft_s': did you mean 'ttft_s'?"),
        ({"ttft_s": "fast"}, "option 'ttft_s': expected float, got 'fast'"),
        ({"ttft_s": -1.0}, "option 'ttft_s': expected at least 0, got -1.0"),
        ({"ttft_s": float("nan")}, "option 'ttft_s': expected at least 0, got nan"),
        ({"tokens": True}, "option 'tokens': expected int, got True"),
        ({"tokens": 2.5}, "option 'tokens': expected int, got 2.5"),
        ({"zero_work": 1}, "option 'zero_work': expected bool, got 1"),
        ({"fault": "kil"}, "option 'fault': 'kil': did you mean 'kill'?"),
        ({"itl_schedule_s": [0.1, "x"]}, "option 'itl_schedule_s': expected a number, got 'x'"),
        ({"itl_schedule_s": 0.1}, "option 'itl_schedule_s': expected list, got 0.1"),
        ({"fail_fraction": 2}, "option 'fail_fraction': expected 0 to 1, got 2"),
        ({"vocabulary": 2**31}, "option 'vocabulary': expected at most 2147483647"),
        ({"accepted": [1]}, "option 'accepted': expected at most drafted=0: 1"),
        ({"accepted": [1.5], "drafted": 4}, "option 'accepted': expected at most drafted=4: 1.5"),
        (
            {"accepted": [1], "drafted": 4, "tokens_per_commit": 2},
            "'accepted' and 'tokens_per_commit' exclude each other",
        ),
        ({"stalls": [{"at": 1}]}, "option 'stalls': expected {at_s: SECONDS, for_s: SECONDS}"),
        ({"stalls": [{"at_s": "x", "for_s": 1}]}, "expected seconds of at least 0"),
        (
            {"stalls": [{"at_s": 1, "for_s": 2}, {"at_s": 2, "for_s": 1}]},
            "expected ascending stalls that do not overlap",
        ),
    ],
)
def test_bad_options_are_one_clear_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        check_options("scripted", options)
    text = str(caught.value)
    assert text.startswith("backend 'scripted': ")
    assert message in text
    assert "\n" not in text


def test_good_options_pass() -> None:
    check_options("scripted", {"ttft_s": 1, "capacity": None, "itl_schedule_s": [0, 0.5]})


def test_unknown_backends_name_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown backend 'script': did you mean 'scripted'"):
        check_options("script", {})


def test_a_backend_that_needs_a_model_says_so() -> None:
    with pytest.raises(UserError, match="backend 'vllm' needs a model"):
        open_backend("vllm", None, Model("missing"), {})
