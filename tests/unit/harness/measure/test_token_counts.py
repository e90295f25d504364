"""A server's own count of tokens against ours, and how many layers each token ran."""

from __future__ import annotations

import pytest

from harness.core.nouns import BackendInfo, Commit, FinishReason, Generation
from harness.measure.checks import check_trial
from harness.measure.protocol import note_layers
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


@pytest.mark.parametrize(("said", "words"), [(4, "8 counted, 4 by its"), (None, "8 counted, 4 as")])
def test_tokens_that_could_not_be_booked_are_counted_all_the_same(
    said: int | None, words: str
) -> None:
    telemetry = {"counted_tokens": 8.0} | ({} if said is None else {"server_tokens": said})
    told = [
        Generation(f"r{i}", 0, 0, token_ids=[-1] * 4, finished="length", telemetry=dict(telemetry))
        for i in range(100)
    ]
    verdict = check_trial(make_trial(requests=100), told, INFO)
    assert not verdict.valid
    assert verdict.reasons[0].startswith("token-counts: 100 of 100 answers")
    assert words in verdict.reasons[0]


def kept(*commits: tuple[int, dict[str, float]]) -> list[int]:
    """Tokens and counts of each commit -> the layers that are kept."""
    found = Generation("r", 0, 0)
    for tokens, counts in commits:
        ids = tuple(range(tokens))
        note_layers(found, Commit("r", ids, telemetry=counts))
        found.token_ids.extend(ids)
    return found.token_layers


def step(layers: float, steps: float = 1) -> dict[str, float]:
    return {"steps": steps, "layers_run": layers, "layers_skipped": 12 * steps - layers}


def test_the_prompt_s_own_token_left_nowhere() -> None:
    assert kept((1, {}), (1, step(4)), (1, step(12)), (1, {})) == [0, 4, 12]


def test_tokens_told_together_are_known_where_all_are_as_deep() -> None:
    assert kept((2, step(8, 2)), (3, step(20, 3)), (1, step(6))) == [4, 4, 0, 0, 0, 6]


def test_counts_that_are_of_no_token_are_left_alone() -> None:
    full = {"steps": 1.0, "layers_run": 12.0}
    assert kept((1, full), (0, step(6)), (2, step(6)), (1, full)) == []
