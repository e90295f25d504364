"""What a server is asked of its caches, and what it is then believed."""

from __future__ import annotations

import pytest

from tests.support.fake_openai import FakeServer
from tests.support.http_client import Start

METRICS = b"""\
# HELP vllm:external_prefix_cache_queries_total of a KV connector
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 64.0
vllm:external_prefix_cache_queries_total{engine="0",model_name="m"} %b
"""


def test_a_reset_reaches_what_a_connector_holds(start: Start) -> None:
    server, backend = start(resets=[True, True])
    backend.reset()
    assert server.asked_to_reset == ["reset_external=true"] * 2


@pytest.mark.parametrize(
    ("counted", "believed"), [(b"0.0", True), (b"2.0", False), (b"1e+06", False), (b"?", True)]
)
def test_a_connector_that_may_keep_its_prompts_is_no_cold_cache(
    start: Start, monkeypatch: pytest.MonkeyPatch, counted: bytes, believed: bool
) -> None:
    """LMCache's does, and the server says that all is dropped."""
    monkeypatch.setattr(FakeServer, "metrics", METRICS % counted)
    server, backend = start(resets=[True, True])
    assert ("cold-reset" in backend.info.capabilities) is believed
    backend.reset()
    assert server.resets == [], "it is asked all the same"
