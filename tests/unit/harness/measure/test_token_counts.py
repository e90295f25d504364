"""A server's own count of tokens against ours."""

from __future__ import annotations

import pytest

from harness.core.nouns import BackendInfo, FinishReason, Generation
from harness.measure.checks import check_trial
from tests.support.harness.sessions import make_trial

INFO = BackendInfo("scripted", "1", "simulation", {}, True)


@pytest.mark.parametrize(
    ("usage", "finished", "doubted"),
    [(4, "length", False), (5, "length", True), (3, "length", True), (5, "stop", False),
     (3, "stop", False), (6, "stop", True)],
)  # fmt: skip
def test_counts_are_those_of_the_server_s_usage(
    usage: int, finished: FinishReason, doubted: bool
) -> None:
    """A token that ends an answer may be in the usage alone, or here alone."""
    told = [
        Generation(f"r{i}", 0, 0, token_ids=[1, 2, 3, 4], finished="length") for i in range(100)
    ]
    for one in told:
        one.telemetry["server_tokens"] = 4
    told[-1].finished, told[-1].telemetry["server_tokens"] = finished, usage
    verdict = check_trial(make_trial(requests=100), told, INFO)
    reason = (
        "token-counts: 1 of 100 answers have other numbers of tokens than the server's usage says "
        f"(first: r99: 4 counted, {usage} by its usage)"
    )
    assert (verdict.valid, verdict.reasons) == (not doubted, (reason,) * doubted)
