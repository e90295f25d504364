"""What a server is asked of its caches, and what it is then believed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.fake_openai import FakeReply, FakeServer, Play
from tests.support.http_client import Start, WordTokenizer

METRICS = b"""\
# HELP vllm:external_prefix_cache_queries_total of a KV connector
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 64.0
vllm:external_prefix_cache_queries_total{engine="0",model_name="m"} %b
"""


def test_a_reset_reaches_what_a_connector_holds(start: Start) -> None:
    server, backend = start(resets=[True, True])
    backend.reset()
    assert server.asked_to_reset == ["", "reset_external=true"]


@pytest.mark.parametrize("caching", [True, "none"])
def test_what_other_servers_may_share_is_left_alone_where_it_may_stay(
    start: Start, caching: bool | str
) -> None:
    server, backend = start(resets=[True, True], prefix_caching=caching)
    backend.reset()
    assert server.asked_to_reset == ["", ""]


def test_a_connector_that_cannot_drop_anything_fails_no_trial(start: Start) -> None:
    """Nor does a server without one whose version calls that a failure."""
    server, backend = start(resets=[True, False, True])
    backend.reset()
    assert server.asked_to_reset == ["", "reset_external=true", ""]


def test_a_reset_may_take_longer_than_a_refusing_server_is_asked_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store elsewhere is not emptied at once."""
    server, backend = start(resets=[True, True])
    answer_post = FakeServer.answer_post

    def slow(server: FakeServer, reply: FakeReply, path: str) -> None:
        time.sleep(0.5)
        answer_post(server, reply, path)

    monkeypatch.setattr(FakeServer, "answer_post", slow)
    monkeypatch.setattr("backends.http.backend.RESET_TIMEOUT_S", 0.1)
    backend.reset()
    assert server.resets == [], "and was asked once"


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
    assert ("keeps-prompts" in backend.info.capabilities) is not believed
    backend.reset()
    assert server.resets == [], "it is asked all the same"


@pytest.mark.parametrize("metrics", [b"", METRICS % b"?", b"vllm:others 1.0\n", METRICS % b"0.0"])
@pytest.mark.parametrize("version", ["0.11.0", None])
def test_a_connector_of_which_vllm_tells_nothing_may_be_there(
    start: Start, monkeypatch: pytest.MonkeyPatch, metrics: bytes, version: str | None
) -> None:
    """Behind a gateway, without its statistics, or too old to count; others have none."""
    answer_get = FakeServer.answer_get

    def get(server: FakeServer, reply: FakeReply, path: str) -> None:
        if path == "/version" and version is not None:
            reply.fail(200, {"version": version})
        elif path == "/metrics" and not metrics:
            reply.fail(401, {})
        else:
            answer_get(server, reply, path)

    monkeypatch.setattr(FakeServer, "answer_get", get)
    monkeypatch.setattr(FakeServer, "metrics", metrics)
    _, backend = start(resets=[True])
    believed = version is None or b" 0.0" in metrics
    assert ("cold-reset" in backend.info.capabilities) is believed
    assert ("keeps-prompts" in backend.info.capabilities) is not believed


BLOCK = 256


def telling_of_some(refusal: int | None = None) -> Play:
    """A server that counts cached tokens only where there are any, as SGLang's; with `refusal` one
    that answers a prompt of a block and more so."""
    seen: list[Any] = []

    def play(reply: FakeReply) -> None:
        asked = reply.body.get("prompt") or reply.body["messages"][0]["content"]
        if refusal is not None and len(asked) > BLOCK:
            reply.fail(refusal, {"error": {"message": "too long"}})
            return
        usage: dict[str, Any] = {"completion_tokens": 3}
        if asked in seen and len(asked) > BLOCK:
            usage["prompt_tokens_details"] = {"cached_tokens": BLOCK}
        seen.append(asked)
        reply.tokens([11, 12])
        reply.tokens([13], "length")
        reply.event({"choices": [], "usage": usage})
        reply.done()
        reply.end()

    return play


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_server_that_counts_cached_tokens_only_where_there_are_any(
    start: Start, api: str
) -> None:
    play = telling_of_some()
    server, backend = start(play, play, WordTokenizer(), api=api)
    assert "cache-telemetry" in backend.info.capabilities
    assert server.paths[-1] == "/reset_prefix_cache", "what was asked is dropped again"


@pytest.mark.parametrize("refusal", [400, 500])
def test_a_prompt_too_long_for_a_server_is_no_reason_to_refuse_it(
    start: Start, refusal: int
) -> None:
    play = telling_of_some(refusal)
    _, backend = start(play, play)
    assert "cache-telemetry" not in backend.info.capabilities
