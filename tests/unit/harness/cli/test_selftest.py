from __future__ import annotations

import time
from typing import Any

import pytest

from backends.http import stamps
from harness.cli import selftest
from harness.cli.selftest import BiasRow, measure, measure_http, run_selftest, verdict
from harness.cli.truth.loads import (
    HTTP_SCENARIOS,
    SCENARIOS,
    TOKENS,
    Scenario,
    dividing_slo,
    expected,
    true_metrics,
)
from harness.core.nouns import TrialRecord
from harness.measure.machine.others import OthersWatch
from results.metrics import arrays
from results.metrics.arrays import RequestArrays
from tests.support.harness.command import call
from tests.support.harness.virtual_time import VirtualTime, install

EXPECTED_METRICS = {
    *(f"{n}_{s}" for n in ("ttft_s", "tpot_s", "itl_s", "e2e_s") for s in ("p50", "p99", "mean")),
    "inner_token_latency_s",
    "output_tok_per_s",
    "decode_tok_per_s_mean",
    "goodput_req_per_s",
    "goodput_tok_per_s",
}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    return install(monkeypatch)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_on_a_machine_without_noise_the_harness_measures_the_truth(
    clock: VirtualTime, scenario: Scenario
) -> None:
    rows = measure(scenario)
    assert {row.metric for row in rows} >= EXPECTED_METRICS
    assert [row for row in rows if not row.ok] == []


@pytest.mark.parametrize("scenario", HTTP_SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_http_client_is_held_against_what_the_server_did(scenario: Scenario) -> None:
    rows = {row.metric: row for row in measure_http(scenario)}
    assert rows.keys() >= EXPECTED_METRICS
    assert rows["ttft_s_p50"].truth >= scenario.ttft_s
    assert rows["tpot_s_mean"].truth > 0
    assert all(row.measured > 0 for name, row in rows.items() if name.startswith("ttft"))


def test_a_client_that_stamps_late_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    read = stamps.read

    def late(*given: Any) -> tuple[bytes, int | None]:
        data, at_ns = read(*given)
        time.sleep(0.01)
        return data, None if at_ns is None else at_ns + 10_000_000

    monkeypatch.setattr(stamps, "read", late)
    rows = {row.metric: row for row in measure_http(HTTP_SCENARIOS[0])}
    assert not rows["ttft_s_p50"].ok
    assert not rows["e2e_s_mean"].ok


def test_the_scenarios_have_open_and_closed_loops_stalls_bursts_queues_and_misses() -> None:
    assert any(s.concurrency for s in SCENARIOS)
    assert any(s.arrivals_s and s.stalls_s for s in SCENARIOS)
    assert any(s.concurrency and s.stalls_s for s in SCENARIOS)
    assert any(s.capacity and s.arrivals_s for s in SCENARIOS)
    assert any(s.accepted for s in SCENARIOS)
    assert any(s.tokens_per_commit > 1 for s in SCENARIOS)
    assert any(s.failing and s.concurrency for s in SCENARIOS)
    assert any(s.failing and s.arrivals_s and s.capacity for s in SCENARIOS)


def test_the_truth_of_a_closed_loop_by_hand() -> None:
    """Two places, answers of 0.1 + 23 x 0.01 = 0.33 s, a stall of 1 s from 0.2 s on."""
    scenario = Scenario("x", 3, 0.1, (0.01,), concurrency=2, stalls_s=((0.2051, 1.0),))
    truth = expected(scenario)
    assert [t.scheduled_s for t in truth] == pytest.approx([0.0, 0.0, 1.33])
    assert truth[0].commits_s[0] == pytest.approx(0.1)
    assert truth[0].commits_s[10:12] == pytest.approx([0.2, 1.21])
    assert truth[2].commits_s[-1] == pytest.approx(1.66)


def test_the_truth_of_a_queue_by_hand() -> None:
    scenario = Scenario("x", 3, 0.1, (0.0,), arrivals_s=(0.0, 0.05, 0.3), capacity=1)
    first, second, third = (t.commits_s[0] - t.scheduled_s for t in expected(scenario))
    assert (first, second, third) == pytest.approx((0.1, 0.15, 0.1))


def test_the_truth_of_failures_by_hand() -> None:
    """One place; the second of three fails 0.01 s after its first token and leaves the place."""
    scenario = Scenario("x", 3, 0.1, (0.01, 0.02), concurrency=1, failing=(1,))
    first, second, third = expected(scenario)
    assert second.commits_s == pytest.approx([0.54])
    assert (second.sizes, second.failed) == ([1], True)
    assert third.scheduled_s == pytest.approx(second.commits_s[0] + 0.01)
    found = true_metrics([first, second, third], dividing_slo([first, second, third]))
    # 0.1 + 12 x 0.01 + 11 x 0.02 s twice, and 0.11 s that deliver nothing
    assert found["output_tok_per_s"] == pytest.approx(2 * TOKENS / 0.99)
    assert found["goodput_req_per_s"] == found["request_per_s"] == pytest.approx(2 / 0.99)
    assert found["e2e_s_mean"] == pytest.approx(0.44)


def test_a_harness_that_takes_failed_requests_for_answers_is_found_out(
    clock: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = arrays.from_record

    def all_well(record: TrialRecord) -> RequestArrays:
        for generation in record.generations:
            generation.finished = "length"
        return real(record)

    scenario = next(s for s in SCENARIOS if s.failing)
    assert all(row.ok for row in measure(scenario))
    monkeypatch.setattr(arrays, "from_record", all_well)
    wrong = {row.metric for row in measure(scenario) if not row.ok}
    assert wrong >= {"e2e_s_mean", "output_tok_per_s", "request_per_s", "goodput_req_per_s"}


def test_true_metrics_by_hand() -> None:
    scenario = Scenario("x", 2, 0.1, (0.01,), concurrency=1)
    slo = dividing_slo(expected(scenario))
    found = true_metrics(expected(scenario), slo)
    assert found["ttft_s_p50"] == pytest.approx(0.1)
    assert found["tpot_s_p50"] == pytest.approx(0.01)
    assert found["output_tok_per_s"] == pytest.approx(2 * TOKENS / 0.66)
    assert found["inner_token_latency_s"] == pytest.approx(0.23 / TOKENS)
    assert found["decode_tok_per_s_mean"] == pytest.approx(100.0)


def test_goodput_is_put_to_the_test_where_requests_queue() -> None:
    """Somewhere the objective must divide the requests, or a broken goodput would go unnoticed."""
    shares = []
    for scenario in SCENARIOS:
        truth = expected(scenario)
        found = true_metrics(truth, dividing_slo(truth))
        shares.append(found["goodput_req_per_s"] / found["request_per_s"])
    assert any(0.05 < share < 0.95 for share in shares)


def test_a_harness_that_stamps_late_is_found_out(
    clock: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Naps of 5 ms instead of 0.1 ms: every first token is stamped milliseconds late."""
    monkeypatch.setattr("harness.core.backend.NAP_S", 0.005)
    rows = {row.metric: row for row in measure(SCENARIOS[3])}
    assert not rows["ttft_s_mean"].ok
    assert rows["ttft_s_mean"].bias > 0.001


def test_bias_is_absolute_for_latencies_and_relative_for_rates() -> None:
    latency = BiasRow("s", "ttft_s_p50", "latency", 0.020, 0.0205)
    assert latency.bias == pytest.approx(0.0005)
    assert latency.ok
    assert not BiasRow("s", "ttft_s_p50", "latency", 0.020, 0.0215).ok
    rate = BiasRow("s", "output_tok_per_s", "rate", 200.0, 199.5)
    assert rate.bias == pytest.approx(-0.0025)
    assert rate.ok
    assert not BiasRow("s", "output_tok_per_s", "rate", 200.0, 202.0).ok


def test_the_median_over_the_passes_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([0.3, 0.1, 0.2])
    monkeypatch.setattr(selftest, "SCENARIOS", SCENARIOS[:1])
    monkeypatch.setattr(selftest, "HTTP_SCENARIOS", ())
    monkeypatch.setattr(
        selftest, "measure", lambda s: [BiasRow(s.name, "x", "latency", 0.0, next(values))]
    )
    [row] = run_selftest(seconds=0.0)
    assert row.measured == 0.2


def test_the_verdict_is_one_line() -> None:
    fine = [
        BiasRow("open", "ttft_s_p50", "latency", 0.1, 0.1002),
        BiasRow("closed", "output_tok_per_s", "rate", 100.0, 99.9),
    ]
    told = verdict(fine)
    assert told.startswith("selftest passed: none of 2 metrics in 2 scenarios off; ")
    assert "latency +0.200 ms (bound 1 ms, open ttft_s_p50)" in told
    assert "rate -0.100 % (bound 0.5 %, closed output_tok_per_s)" in told
    off = BiasRow("open", "e2e_s_p50", "latency", 0.1, 0.102)
    assert verdict([*fine, off]).startswith("selftest failed: 1 of 3 metrics")


def test_a_failure_on_a_busy_machine_names_the_cause(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    off, fine = (BiasRow("open", "e2e_s_p50", "latency", 0.1, end) for end in (0.102, 0.1))
    cause = "other processes used 60% of this machine's processors meanwhile"
    assert cause in verdict([off], 0.6)
    assert "other processes" not in verdict([off], 0.1)
    assert "other processes" not in verdict([fine], 0.6)
    monkeypatch.setattr(selftest, "run_selftest", lambda seconds: [off])
    monkeypatch.setattr(OthersWatch, "share", lambda watch: 0.6)
    assert call(monkeypatch, "selftest") == 1
    assert cause in capsys.readouterr().out
