"""How long probes are, which count, and what is told where no rate was found; in virtual time."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from benchmarks.soundness.goodput_search import SERVICE_S, capacity
from harness.cli.goodput.probe_lengths import IdleSystem
from harness.cli.goodput.probing import ProbedLoad, Prober
from harness.cli.goodput.search_run import SearchedSystems, _lines, _told, tell
from harness.cli.goodput.searching import SystemSearch
from harness.core.errors import UserError
from harness.core.nouns import Slo, Validity
from results.goodput.steady import before_the_last
from results.metrics.arrays import Floats, from_record
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.virtual_server import SETTINGS, SYSTEM, VirtualServer, searched

TOKENS, FIXED_S, MORE_S = 512, 0.010, 0.00015
"""A step of a batch takes `FIXED_S`, and `MORE_S` for each sequence in it."""


class BatchingServer(VirtualServer):
    """Works on all that there is at once, each token of all in one step."""

    def run(self, asked: Any) -> ProbedLoad:
        load, number, requests = asked
        self.asked.append(load)
        rng = np.random.default_rng(number)
        gaps = rng.exponential(1 / load.rate, requests) if load.rate else np.full(requests, 1e3)
        due = np.cumsum(gaps)
        times = _batched(due)
        made = [
            generation(f"r{n}", [1e3 * at, 1e3 * (at + took)], [1, TOKENS], scheduled_ms=1e3 * at)
            for n, (at, took) in enumerate(zip(due, times, strict=True))
        ]
        found = record(trial("made up"), made, scores={})
        return ProbedLoad(found, from_record(found), was_stored=False)


def _batched(due: Floats) -> Floats:
    """How long each answer takes: all are as long, so that they end in the order they came in."""
    ends, done_at, decoded, now = np.empty(len(due)), 0, 0.0, 0.0
    target: list[float] = []
    for at in [*due, np.inf]:
        while done_at < len(target):
            step_s = FIXED_S + MORE_S * (len(target) - done_at)
            ready = now + (target[done_at] - decoded) * step_s
            if ready > at:
                break
            decoded, now = target[done_at], ready
            ends[done_at] = ready
            done_at += 1
        if np.isinf(at):
            break
        if done_at < len(target):
            decoded += (at - now) / (FIXED_S + MORE_S * (len(target) - done_at))
        now = at
        target.append(decoded + TOKENS)
    return ends - due


def test_a_full_batch_is_seen_where_the_objective_is_of_the_time_per_token() -> None:
    """50 ms a token are met with 266 sequences in a batch, which 10.4 requests a second make. The
    first 400 requests at 16 a second, over 25 s, meet it all: the batch is not full yet."""
    bound_s = 0.05
    most = (bound_s - FIXED_S) / MORE_S
    truth = most / (TOKENS * bound_s)
    due = np.cumsum(np.random.default_rng(1).exponential(1 / 15, 400))
    assert (_batched(due) / TOKENS < bound_s).mean() > 0.95, "what a short probe would have seen"
    one = searched(BatchingServer(), slo=Slo(ttft_ms=200, tpot_ms=1e3 * bound_s), requests=400)
    assert one.first.found is not None
    assert one.first.found.rate == pytest.approx(truth, rel=0.12)


def test_probes_that_were_too_short_for_a_wider_objective_do_not_count_for_it() -> None:
    one = searched(VirtualServer(), scales=(200.0,))
    slo_s = 200 * 4 * SERVICE_S
    for probe in one.scales[200.0].probes:
        # a warm-up may be half of a probe, and its end a quarter
        assert len(probe.met) >= 0.25 * 20 * slo_s * probe.asked - 1


class EndlessServer(VirtualServer):
    """Nobody ever waits."""

    def served(
        self, rate: float | None, count: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        return np.arange(count) / (rate or 1 / SERVICE_S), np.full(count, SERVICE_S)


def test_a_rate_that_held_is_told_where_the_client_is_late_above_it() -> None:
    server = EndlessServer(late_from=150)
    one = searched(server)
    assert one.first.found is None
    assert one.first.ended == "the client was late"
    assert [load.rate for load in server.asked] == [None, 100, 200, 200, 141.4, 168.2, 168.2]
    told = "the client, which was late at 168.2/s: more cannot be asked here"
    assert one.first.limit == told
    assert _told(one.first) == f"held at 141.4/s; limited by {told}"
    assert one.plain(0.95)["low_per_s"] == 141.4
    assert one.plain(0.95)["rate_per_s"] is None


@pytest.mark.parametrize(
    ("share", "told"),
    [(0.98, "98.0% of the"), (0.9896, "98.960% of the"), (0.9504, "95.0% of the")],
)
def test_a_share_just_below_the_wanted_one_has_digits_enough(share: float, told: str) -> None:
    """It was told as 99.0% where 99.0% was expected."""
    settings = dataclasses.replace(SETTINGS, share=0.99)
    search = SystemSearch(cast(Prober, EndlessServer()), SYSTEM, settings)
    said = search._idle_misses(settings.slo, share)
    assert said.startswith(f"even one request at a time meets the slo in {told} cases only")
    assert said.endswith("expected 99.0%") != ("960" in told)


def test_the_highest_rate_that_may_be_tried_is_tried_once() -> None:
    """2,000 requests over 140 s are 14.27 a second: with all of its digits that is less than the
    limit's own rate."""
    server = EndlessServer()
    one = searched(server, slo=Slo(e2e_ms=7000), requests=60, most_requests=2000)
    assert one.first.ended == "more requests were needed than may be"
    assert [load.rate for load in server.asked] == [None, 14.27]
    assert one.first.limit.endswith("'limits: prompts' allows 2,000")
    assert one.first.held == 14.27


def test_a_system_that_held_at_every_rate_is_said_to() -> None:
    """It was said to have sustained nothing, and the search was refused as bad input."""
    one = searched(EndlessServer(right=0.75), most=3)
    held = "held at 400/s, the highest rate tried; more --max-probes finds its limit"
    assert next(iter(_lines(one))) == f"made up, gsm8k: {held}"
    assert one.answers is not None
    assert one.answers.right_per_s == pytest.approx(400 * 0.75, rel=0.05)
    tell(SearchedSystems(Path("x"), [one], {}), as_json=False)
    late = searched(EndlessServer(right=0.5, late_from=150), least_score=0.8)
    assert _told(late.first).startswith("no rate found: answers: exact_match 0.")
    worse = searched(EndlessServer(right=0.5), most=3, least_score=0.8)
    assert _told(worse.first).startswith("no rate found: answers: exact_match 0.")
    with pytest.raises(UserError, match="no rate found: answers"):
        tell(SearchedSystems(Path("x"), [worse], {}), as_json=False)


class DisturbedServer(VirtualServer):
    """Beside others, from the first probe with a rate on, `disturbed` of them."""

    def __init__(self, disturbed: int, right: float = 1.0) -> None:
        super().__init__(right)
        self._disturbed = disturbed

    def run(self, asked: Any) -> ProbedLoad:
        found = super().run(asked)
        if not asked[0].rate or len(self.asked) - 1 > self._disturbed:
            return found
        late_ns = found.requests.commit_ns + int(1e9) * (len(self.asked) == 2)
        requests = dataclasses.replace(found.requests, commit_ns=late_ns)
        noisy = Validity(valid=False, reasons=("machine-noisy: others used 40%",))
        return ProbedLoad(dataclasses.replace(found.record, validity=noisy), requests, False)


def test_a_probe_that_misses_beside_others_is_asked_once_more() -> None:
    server = DisturbedServer(1)
    one = searched(server, slo=Slo(e2e_ms=1e3 * 8 * SERVICE_S))
    assert [load.rate for load in server.asked][1:3] == [100, 100]
    assert (len(one.first.probes), one.first.disturbed) == (len(server.asked) - 2, 0)
    assert one.first.found is not None
    assert one.first.found.rate == pytest.approx(capacity(8, 0.95) / SERVICE_S, rel=0.12)


def test_where_all_is_disturbed_the_search_ends_and_says_so() -> None:
    one = searched(DisturbedServer(1000))
    told = _told(one.first)
    count = len(one.first.probes)
    assert f" in {count} probes ({count} of them disturbed); limited by end to end" in told
    assert one.first.disturbed == len(one.first.probes) > 0
    assert one.plain(0.95)["disturbed"] == one.first.disturbed
    worse = searched(DisturbedServer(1000, right=0.5), least_score=0.8).first
    assert (worse.found, worse.disturbed) == (None, len(worse.probes)), "a withdrawn rate's, too"


def test_where_probes_ran_out_the_line_says_what_makes_the_interval_narrower() -> None:
    advice = "; limited by end to end; more --requests or --max-probes make the interval narrower"
    short = searched(VirtualServer(), requests=100, most=5)
    assert short.first.found is not None
    assert _told(short.first).endswith(advice)
    long = searched(VirtualServer(), requests=6000, most=20)
    assert long.first.ended == "narrow enough"
    assert _told(long.first).endswith("; limited by end to end")
    exact = searched(VirtualServer(), requests=6000, most=len(long.first.probes) - 1)
    assert exact.first.found is not None
    low, high = exact.first.found.low, exact.first.found.high
    is_narrow = (high - low) / 2 <= 0.1 * exact.first.found.rate
    assert _told(exact.first).endswith(advice) != is_narrow


def test_a_search_on_long_answers_does_not_begin_with_an_hour() -> None:
    """400 requests at one in ten seconds take 67 minutes; eight under way are for any engine."""
    assert IdleSystem(e2e_s=20.0, tpot_s=0.02).first_rate(400) == pytest.approx(8 / 20)
    assert IdleSystem(e2e_s=0.3, tpot_s=0.02).first_rate(400) == pytest.approx(2 / 0.3)


def test_answers_are_taken_to_be_no_slower_than_the_objective_allows() -> None:
    alone = IdleSystem(e2e_s=1.0, tpot_s=0.01)
    assert alone.lasts_s(Slo(ttft_ms=100)) == pytest.approx(9 * 3)
    assert alone.lasts_s(Slo(tpot_ms=15)) == pytest.approx(9 * 1.5)
    assert alone.lasts_s(Slo(tpot_ms=5)) == pytest.approx(9), "idle it misses"
    assert alone.lasts_s(Slo(e2e_ms=2000)) == pytest.approx(40)


def test_the_last_requests_of_a_probe_are_left_out_for_as_long_as_an_answer_takes() -> None:
    due = np.arange(100, dtype=float)
    assert before_the_last(due, 9.5 + 0 * due) == 90
    assert before_the_last(due, 1e3 + 0 * due) == 75, "no more than a quarter"
    assert before_the_last(due[:0], due[:0]) == 0
