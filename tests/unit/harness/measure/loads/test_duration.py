"""A load that lasts for a time: prompts over and over, then those in flight are waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backends.scripted import ScriptedBackend
from harness.core.names import asked_again, row_id
from harness.core.nouns import Load, Model, Request, Trial, Workload
from harness.measure.load_loop import LoadProgress, run_load
from results.compare.pairing import data_rows
from tests.support.harness.puppet import CLOSED, OPEN, Puppet, requests
from tests.support.harness.virtual_time import VirtualTime, install


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    return install(monkeypatch)


def test_a_closed_load_goes_on_until_its_time_is_over(clock: VirtualTime) -> None:
    backend = ScriptedBackend({"ttft_s": 0.1, "itl_s": 0.05})  # an answer of 4 takes 0.25 s
    found = run_load(backend, requests(3), CLOSED, duration_s=1.1)
    start = found[0].submitted_ns
    submitted = [(g.submitted_ns - start) * 1e-9 for g in found]
    assert len(found) == 2 * 5, "two at a time, at 0, 0.25, ... 1.0 s"
    assert max(submitted) < 1.1
    assert all(g.finished == "length" and len(g.token_ids) == 4 for g in found)
    assert [g.request_id for g in found] == [
        "r0", "r1", "r2", "r0#2", "r1#2", "r2#2", "r0#3", "r1#3", "r2#3", "r0#4",
    ]  # fmt: skip
    assert max(g.commit_ns[-1] for g in found) - start > 1.1e9, "the last ones are waited for"


def test_a_time_too_short_for_all_prompts_asks_for_some(clock: VirtualTime) -> None:
    backend = ScriptedBackend({"ttft_s": 0.1, "itl_s": 0.05})
    found = run_load(backend, requests(50), CLOSED, duration_s=0.3)
    assert [g.request_id for g in found] == ["r0", "r1", "r2", "r3"]


def at_once(count: int) -> Load:
    return Load("closed", concurrency=count)


@pytest.mark.parametrize(("prompts", "places"), [(1, 1), (1, 4), (3, 4), (4, 4), (5, 4)])
def test_answers_that_all_end_in_one_poll_do_not_end_the_load(
    clock: VirtualTime, prompts: int, places: int
) -> None:
    backend = Puppet(work=lambda: clock.sleep(0.1))  # each poll ends all that is in flight
    found = run_load(backend, requests(prompts), at_once(places), duration_s=1.05)
    assert len(found) == 11 * places, "at 0, 0.1, ... 1.0 s, with every place taken"
    assert backend.most_in_flight == places
    assert len({g.request_id for g in found}) == len(found)
    assert {row_id(g.request_id, {"r0"}) for g in found} >= {"r0"}


def test_every_place_is_taken_at_once_however_few_the_prompts(clock: VirtualTime) -> None:
    found = run_load(ScriptedBackend({"ttft_s": 0.5}), requests(1), at_once(5), duration_s=0.4)
    assert len(found) == 5
    assert found[-1].submitted_ns - found[0].submitted_ns < 1e6, "before the first poll"


def test_empty_polls_end_nothing_and_a_late_one_asks_for_no_more(clock: VirtualTime) -> None:
    def late() -> None:
        for _ in range(7 if backend.polls else 1):
            clock.sleep(0.2)

    backend = Puppet([[], []], work=late)
    found = run_load(backend, requests(1), at_once(1), duration_s=1.3)
    assert [g.finished for g in found] == ["stop"], "the third poll ends what began before"
    backend = Puppet([[], []])
    found = run_load(backend, requests(1), at_once(1), duration_s=1e-3)
    assert len(found) > 1


def test_nothing_is_submitted_once_the_time_is_over(clock: VirtualTime) -> None:
    class SlowToSubmit(Puppet):
        def submit(self, request: Request) -> None:
            clock.sleep(0.4)
            super().submit(request)

    found = run_load(SlowToSubmit(), requests(8), at_once(8), duration_s=1.0)
    assert [(g.submitted_ns - found[0].submitted_ns) // 10**8 for g in found] == [0, 4, 8]


def test_a_load_of_a_time_without_requests_is_over_at_once(clock: VirtualTime) -> None:
    assert run_load(Puppet(), [], CLOSED, duration_s=60.0) == []


@pytest.mark.parametrize("load", [CLOSED, OPEN])
def test_progress_says_how_much_of_the_time_is_over(clock: VirtualTime, load: Load) -> None:
    told: list[LoadProgress] = []
    backend = ScriptedBackend({"ttft_s": 0.5, "itl_s": 0.5})
    run_load(backend, requests(2), load, duration_s=3.0, on_progress=told.append)
    assert {progress.duration_s for progress in told} == {3.0}
    assert told[0].elapsed_s < 0.1
    assert told[-1].elapsed_s > 1.5
    run_load(ScriptedBackend({}), requests(2), CLOSED, on_progress=told.append)
    assert told[-1].duration_s is None


def test_an_open_load_has_the_arrivals_that_it_was_given(clock: VirtualTime) -> None:
    found = run_load(ScriptedBackend({}), requests(3, arrivals=[0, 1, 2]), OPEN, duration_s=0.5)
    assert len(found) == 3


def test_ids_of_prompts_that_are_asked_again() -> None:
    assert asked_again(["a", "b"], 1) == ["a#2", "b#2"]
    assert asked_again(["a", "b"], 2) == ["a#3", "b#3"]
    assert asked_again(["a", "b", "a#2"], 1) == ["a#3", "b#2", "a#4"]
    assert asked_again(["a#x"], 1) == ["a#x#2"]
    ids = ["a", "b", "a#2"]
    laps = [*ids, *asked_again(ids, 1), *asked_again(ids, 2)]
    assert len(set(laps)) == 9
    assert {row_id(name, laps) for name in laps} == {"a", "b"}
    rows = data_rows(laps)
    assert rows is not None
    assert len(set(rows)) == 2, "the statistics know them as one row"


def test_a_trial_of_a_time_is_another_trial() -> None:
    trial = Trial("x", {}, Model("demo"), Workload("gsm8k"), Load("closed", concurrency=1), 4, 8)
    assert trial.key("m") != replace(trial, duration_s=5.0).key("m")
