"""Every latency and rate against numbers worked out by hand, and identities that must hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.nouns import FinishReason, Generation, Slo
from results.metrics import latency
from results.metrics.arrays import RequestArrays, from_record
from tests.support.results.make_trials import MS, generation, record, trial


def arrays(*generations: Generation) -> RequestArrays:
    return from_record(record(trial(), generations))


# Open loop: due at 100 ms, sent at 103 ms, commits of 1, 2 and 1 tokens.
LATE = generation("late", [110, 130, 145], [1, 2, 1], scheduled_ms=100, submitted_ms=103, lag_ms=2)
# Closed loop: scheduled when submitted; the first commit holds 3 tokens.
CLOSED = generation("closed", [20, 30], [3, 5], scheduled_ms=10)
ONE = generation("one", [50], scheduled_ms=40)
BURST = generation("burst", [60], [4], scheduled_ms=40)
BROKEN = generation("broken", [41, 500], scheduled_ms=40, finished="error")
CUT = generation("cut", [42, 43], scheduled_ms=40, finished=None)
SILENT = generation("silent", [], scheduled_ms=40, finished="stop")


def test_open_loop_counts_from_the_scheduled_time() -> None:
    assert latency.ttft_s(arrays(LATE)).tolist() == [0.010]
    assert latency.e2e_s(arrays(LATE)).tolist() == [0.045]
    assert latency.submit_lag_s(arrays(LATE)).tolist() == [0.003]
    assert latency.client_lag_s(arrays(LATE)).tolist() == [0.002]


def test_closed_loop_counts_from_the_submit() -> None:
    assert latency.ttft_s(arrays(CLOSED)).tolist() == [0.010]
    assert latency.e2e_s(arrays(CLOSED)).tolist() == [0.020]
    assert latency.submit_lag_s(arrays(CLOSED)).tolist() == [0.0]


def test_tpot_leaves_out_the_tokens_of_the_first_commit() -> None:
    assert latency.tpot_s(arrays(LATE)).tolist() == pytest.approx([0.035 / 3])
    assert latency.tpot_s(arrays(CLOSED)).tolist() == pytest.approx([0.010 / 5])
    assert latency.decode_tok_per_s(arrays(CLOSED)).tolist() == pytest.approx([500.0])


def test_tpot_is_undefined_not_zero_when_all_came_at_once() -> None:
    found = arrays(ONE, BURST)
    assert np.isnan(latency.tpot_s(found)).all()
    assert np.isnan(latency.decode_tok_per_s(found)).all()
    assert len(latency.itl_s(found)) == 0
    assert latency.ttft_s(found).tolist() == [0.010, 0.020]


def test_itl_is_one_value_per_token_of_the_later_commit() -> None:
    assert latency.itl_s(arrays(LATE)).tolist() == pytest.approx([0.010, 0.010, 0.015])
    assert latency.itl_s(arrays(CLOSED, LATE)).tolist() == pytest.approx(
        [0.002] * 5 + [0.010, 0.010, 0.015]
    )


def test_inner_token_latency_divides_by_all_tokens() -> None:
    assert latency.inner_token_latency_s(arrays(LATE, CLOSED)) == pytest.approx(
        (0.035 + 0.010) / (4 + 8)
    )


def test_throughput_spans_first_submit_to_last_commit() -> None:
    found = arrays(LATE, CLOSED)
    assert latency.window_s(found) == pytest.approx(0.135)
    assert latency.output_tok_per_s(found) == pytest.approx(12 / 0.135)
    assert latency.request_per_s(found) == pytest.approx(2 / 0.135)
    assert latency.window_s(arrays(LATE)) == pytest.approx(0.042), "not from the scheduled time"


def test_the_realised_rate_is_gaps_over_the_time_between_first_and_last_arrival() -> None:
    """Four arrivals in 250 ms, three gaps: 12 a second. Late submits and failures are no matter."""
    ends: dict[int, FinishReason | None] = {100: "stop", 150: "error", 300: None, 350: "length"}
    found = arrays(
        *(
            generation(f"r{t}", [999], scheduled_ms=t, submitted_ms=2 * t, finished=end)
            for t, end in ends.items()
        )
    )
    assert latency.arrival_rate_per_s(found) == pytest.approx(3 / 0.25)
    assert latency.arrival_rate_per_s(arrays(ONE)) is None
    assert latency.arrival_rate_per_s(arrays()) is None
    together = arrays(generation("a", [1]), generation("b", [2]))
    assert latency.arrival_rate_per_s(together) is None


def test_failed_and_unfinished_requests_are_never_samples() -> None:
    found = arrays(CLOSED, BROKEN, CUT, SILENT)
    for metric in (latency.ttft_s, latency.tpot_s, latency.e2e_s, latency.decode_tok_per_s):
        assert metric(found).tolist() == metric(arrays(CLOSED)).tolist()
    assert latency.itl_s(found).tolist() == latency.itl_s(arrays(CLOSED)).tolist()
    assert latency.output_tokens(found) == 8
    assert latency.window_s(found) == pytest.approx(0.490)
    assert latency.request_per_s(found) == pytest.approx(2 / 0.490)


def test_nothing_at_all_is_undefined() -> None:
    for found in (arrays(), arrays(SILENT), arrays(generation("e", [], finished="error"))):
        assert latency.window_s(found) is None
        assert latency.output_tok_per_s(found) is None
        assert latency.request_per_s(found) is None
        assert latency.inner_token_latency_s(found) is None
        assert latency.goodput_req_per_s(found, Slo()) is None
        assert latency.goodput_tok_per_s(found, Slo(ttft_ms=1)) is None
        assert len(latency.ttft_s(found)) == 0


def test_commits_without_tokens_are_not_output() -> None:
    """A server may close its stream with an empty chunk long after the last token."""
    empty = generation("closed", [15, 20, 30, 900], [0, 3, 5, 0], scheduled_ms=10)
    assert latency.e2e_s(arrays(empty)).tolist() == latency.e2e_s(arrays(CLOSED)).tolist()
    assert latency.ttft_s(arrays(empty)).tolist() == [0.010]
    assert latency.itl_s(arrays(empty)).tolist() == latency.itl_s(arrays(CLOSED)).tolist()
    single = arrays(generation("a", [5, 10, 20, 50], [0, 1, 1, 2]))
    assert latency.ttft_s(single).tolist() == [0.010]
    assert latency.tpot_s(single).tolist() == pytest.approx([0.040 / 3])


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        (Slo(), ["late", "closed", "one"]),
        (Slo(ttft_ms=10), ["late", "closed", "one"]),
        (Slo(ttft_ms=9.999), []),
        (Slo(tpot_ms=5), ["closed", "one"]),
        (Slo(tpot_ms=2), ["closed", "one"]),
        (Slo(tpot_ms=1.999), ["one"]),
        (Slo(e2e_ms=20), ["closed", "one"]),
        (Slo(tpot_ms=12, e2e_ms=45), ["late", "closed", "one"]),
        (Slo(ttft_ms=10, tpot_ms=1), ["one"]),
    ],
)
def test_goodput_by_hand(slo: Slo, good: list[str]) -> None:
    requests = (LATE, CLOSED, ONE, BROKEN, CUT, SILENT)
    found = arrays(*requests)
    met = latency.meets_slo(found, slo)
    assert [i for i, m in zip(found.ids, met, strict=True) if m] == good
    tokens = sum(sum(g.commit_tokens) for g in requests if g.request_id in good)
    assert latency.goodput_req_per_s(found, slo) == pytest.approx(len(good) / 0.490)
    assert latency.goodput_tok_per_s(found, slo) == pytest.approx(tokens / 0.490)


@st.composite
def generations(draw: st.DrawFn, index: int) -> Generation:
    scheduled = draw(st.integers(0, 10**9))
    submitted = scheduled + draw(st.integers(0, 10**7))
    gaps = draw(st.lists(st.integers(0, 10**8), max_size=6))
    stamps = np.cumsum([submitted, *gaps])[1:].tolist()
    counts = draw(st.lists(st.integers(0, 4), min_size=len(gaps), max_size=len(gaps)))
    ends: Sequence[FinishReason | None] = (None, "stop", "length", "error")
    return Generation(
        f"r{index}",
        scheduled,
        submitted,
        commit_ns=stamps,
        commit_tokens=counts,
        token_ids=list(range(sum(counts))),
        finished=draw(st.sampled_from(ends)),
    )


trials = st.integers(0, 5).flatmap(lambda n: st.tuples(*(generations(i) for i in range(n))))
bounds = st.one_of(st.none(), st.floats(0, 500))
slos = st.builds(Slo, ttft_ms=bounds, tpot_ms=bounds, e2e_ms=bounds)


@given(trials)
def test_inter_token_latencies_add_up_to_the_decode_time(given: tuple[Generation, ...]) -> None:
    found = arrays(*given)
    assert latency.itl_s(found).sum() == pytest.approx(latency.decode_s(found).sum(), abs=1e-9)
    assert len(latency.itl_s(found)) == latency.later_tokens(found).sum()


@given(trials)
def test_end_to_end_is_first_token_plus_decoding(given: tuple[Generation, ...]) -> None:
    found = arrays(*given)
    total = latency.ttft_s(found) + latency.decode_s(found)
    assert latency.e2e_s(found) == pytest.approx(total, abs=1e-9)
    rate, time = latency.decode_tok_per_s(found), latency.tpot_s(found)
    both = ~np.isnan(rate) & ~np.isnan(time)
    assert rate[both] * time[both] == pytest.approx(1.0)


@given(trials, slos)
def test_goodput_never_exceeds_throughput(given: tuple[Generation, ...], slo: Slo) -> None:
    found = arrays(*given)
    for good, all_of_it in (
        (latency.goodput_req_per_s(found, slo), latency.request_per_s(found)),
        (latency.goodput_tok_per_s(found, slo), latency.output_tok_per_s(found)),
    ):
        assert (good is None) == (all_of_it is None)
        assert good is None or all_of_it is None or good <= all_of_it


@given(trials, slos, st.floats(1, 10))
def test_a_looser_objective_loses_no_request(
    given: tuple[Generation, ...], slo: Slo, factor: float
) -> None:
    found = arrays(*given)
    names = ("ttft_ms", "tpot_ms", "e2e_ms")
    bounds = {n: getattr(slo, n) and getattr(slo, n) * factor for n in names}
    looser = dataclasses.replace(slo, **bounds)
    assert not (latency.meets_slo(found, slo) & ~latency.meets_slo(found, looser)).any()


@given(trials, st.integers(-(10**9), 10**9))
def test_only_differences_of_stamps_matter(given: tuple[Generation, ...], shift: int) -> None:
    moved = [
        dataclasses.replace(
            g,
            scheduled_ns=g.scheduled_ns + shift,
            submitted_ns=g.submitted_ns + shift,
            commit_ns=[t + shift for t in g.commit_ns],
        )
        for g in given
    ]
    here, there = arrays(*given), arrays(*moved)
    for metric in (latency.ttft_s, latency.tpot_s, latency.e2e_s, latency.itl_s):
        assert np.array_equal(metric(here), metric(there), equal_nan=True)
    assert latency.output_tok_per_s(here) == latency.output_tok_per_s(there)


def test_stamps_of_a_machine_up_for_a_year_keep_their_nanoseconds() -> None:
    """In float64 seconds, 3e7 s leaves 4 ns steps; the subtraction must come first."""
    start = 366 * 86400 * 1000
    one = Generation(
        "r", start * MS, start * MS, 0, [start * MS + 1, start * MS + 2], [1, 1], [1, 2]
    )
    one.finished = "stop"
    assert latency.ttft_s(arrays(one)).tolist() == [1e-9]
    assert latency.tpot_s(arrays(one)).tolist() == [1e-9]
