from __future__ import annotations

import pytest

from harness.core.nouns import Slo
from results.metrics.arrays import from_record
from results.metrics.other_tools import as_vllm_bench
from tests.support.results.make_trials import generation, record, trial


def test_vllm_bench_by_hand() -> None:
    """Sent at 103 ms; chunks of 2, 2 and 1 tokens at 110, 130 and 145 ms. A one-token answer is
    in TTFT and in the objective, with a TPOT of 0, but not among the TPOTs."""
    generations = [
        generation("a", [110, 130, 145], [2, 2, 1], scheduled_ms=100, submitted_ms=103),
        generation("b", [120], scheduled_ms=105),
        generation("c", [121], scheduled_ms=105, finished="error"),
    ]
    found = as_vllm_bench(from_record(record(trial(), generations)), Slo(tpot_ms=8, ttft_ms=15))
    assert found["completed"] == 2
    assert found["failed"] == 1
    assert found["duration"] == pytest.approx(0.042)
    assert found["total_output_tokens"] == 6
    assert found["output_throughput"] == pytest.approx(6 / 0.042)
    assert found["request_throughput"] == pytest.approx(2 / 0.042)
    assert found["request_goodput"] == pytest.approx(1 / 0.042)
    assert found["mean_ttft_ms"] == pytest.approx((7 + 15) / 2)
    assert found["mean_tpot_ms"] == pytest.approx(35 / 4)
    assert found["mean_itl_ms"] == pytest.approx((20 + 15) / 2)
    assert found["mean_e2el_ms"] == pytest.approx((42 + 15) / 2)
    assert found["p99_e2el_ms"] == pytest.approx(15 + 0.99 * 27)
    assert found["std_itl_ms"] == pytest.approx(2.5)
