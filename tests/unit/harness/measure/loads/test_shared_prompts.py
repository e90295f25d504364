"""What a server's cache may hold from other prompts of the same trial."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.core.nouns import BackendInfo, Generation, Request
from harness.measure.checks import check_trial
from tests.support.harness.sessions import make_trial

INFO = BackendInfo("scripted", "1", "simulation", {}, True)
UNLIKE = [(n, *range(1, 20)) for n in range(50)]
ALIKE = [(*range(1, 20), n) for n in range(50)]


@pytest.mark.parametrize(
    ("prompts", "asked", "words"),
    [
        (UNLIKE, "once", None),
        (ALIKE, "once", "93% begin another of its prompts too (limit 10%)"),
        (UNLIKE[:40] + UNLIKE[:10], "once", "20% begin another"),
        (UNLIKE[:46] + UNLIKE[:4], "once", None),
        # a load of a time asks them all again
        (UNLIKE[:25], "again", "50% begin another"),
    ],
)
def test_a_dropped_cache_fills_again_where_prompts_are_alike(
    prompts: list[tuple[int, ...]], asked: str, words: str | None
) -> None:
    requests = [Request(f"r{i}", prompt, 4) for i, prompt in enumerate(prompts)]
    told = [Generation(r.id, 0, 0, token_ids=[1] * 4, finished="length") for r in requests]
    if asked == "again":
        told += [replace(g, request_id=f"{g.request_id}#2") for g in told]
    server = replace(INFO, capabilities=frozenset({"server", "cold-reset"}))
    counts = replace(server, capabilities=server.capabilities | {"cache-telemetry"})
    trial = make_trial(requests=len(told))
    verdict = check_trial(trial, told, server, requests=requests)
    assert verdict.valid == (words is None)
    if words is not None:
        assert verdict.reasons[0].startswith("cache-unknown: ")
        assert words in verdict.reasons[0]
    unknown = check_trial(trial, told, server)
    assert unknown.valid == (asked == "once"), "the names say that prompts are asked again"
    others: list[tuple[BackendInfo, dict[str, Any]]] = [(counts, {}), (INFO, {})]
    for info, options in [*others, (server, {"prefix_caching": "none"})]:
        sure = replace(trial, options=options)
        assert check_trial(sure, told, info, requests=requests).valid
